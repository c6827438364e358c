# Two commands on a fresh clone:
#   make demo   install into .venv and run the embedded study (about 2 minutes after set-up)
#   make test   linters, type checker and the whole test suite
# Both reuse .venv; a second run installs nothing. Beside them:
#   make browser       install a browser for the tests of the report page, if none is there (may ask for a password)
#   make docs          the documentation site, in docs/_build/html; a warning is an error
#   make notebooks     execute the notebooks of the site anew and store their outputs (about 3 minutes)
#   make coverage      the test suite with the lines it runs counted
#   make pages         do what the pages say: their Python, the examples, the notebooks at small sizes; a minute
#   make ray           the launcher on a real Ray cluster: half a minute. Continuous integration adds this and the pages to `make test`
#   make soak          the long campaigns, before a release: kills, losses, every study at smoke scale
#   make test-lowest   the test suite with the lowest declared version of every dependency, in .venv-lowest
#   make wheel         build wheel and sdist into dist/, install the wheel in a clean .venv-wheel, run a study from there

PYTHON ?= python3
BIN := .venv/bin
# Compiled files are kept also where the shell says not to: without them every worker and program compiles all tests anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test browser docs notebooks coverage pages ray soak test-lowest wheel clean

demo: .venv/installed
	$(BIN)/regmixup study digits

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
# The type checker, half a minute of one core in a fresh clone, runs beside the tests and reports after them.
	@types=$$(mktemp); $(BIN)/mypy >$$types 2>&1 & checker=$$!; \
	$(BIN)/pytest -n 2 --dist worksteal; tests=$$?; \
	wait $$checker; typed=$$?; echo 'mypy:'; cat $$types; rm $$types; exit $$((tests || typed))

browser: .venv/installed-dev
	tests/browser/install.sh

docs: .venv/installed-docs
	rm -rf docs/_build docs/api docs/cards
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo 'the site is in docs/_build/html/index.html'

notebooks: .venv/installed-docs
	@place=$$(mktemp -d) && mkdir $$place/docs && cp -r docs/notebooks $$place/docs && ln -s $(CURDIR)/results $$place && \
	cd $$place/docs/notebooks && OMP_NUM_THREADS=1 $(CURDIR)/$(BIN)/jupyter execute --inplace --timeout=600 \
	--NotebookClient.record_timing=False *.ipynb && cp *.ipynb $(CURDIR)/docs/notebooks && rm -r $$place

coverage: .venv/installed-dev
	$(BIN)/pytest -n 2 --cov -m 'not soak and not ray'

pages: .venv/installed-dev
	$(BIN)/pytest -q -n 2 --dist worksteal -m pages tests

ray: .venv/installed-dev
	$(BIN)/pytest -q -m ray tests/study/test_launchers.py

soak: .venv/installed-dev
	$(BIN)/pytest -n 2 --dist worksteal -m 'soak or ray'

test-lowest: .venv-lowest/installed
	.venv-lowest/bin/pytest -n 2 -W default

.venv-lowest/installed: pyproject.toml tests/lowest.py
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --disable-pip-version-check --quiet --constraint .venv-lowest/lowest.txt --editable '.[dev]'
	@touch $@

# The study runs in an empty folder, so that nothing of this one is found. torch comes without CUDA, which is 4 GB smaller.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
wheel: .venv/installed-dev
	rm -rf dist .venv-wheel
	$(BIN)/python -m hatchling build
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install --disable-pip-version-check --quiet --index-url $(TORCH_INDEX) torch torchvision
	.venv-wheel/bin/pip install --disable-pip-version-check --quiet dist/regmixup-*.whl
	cd $$(mktemp -d) && $(CURDIR)/.venv-wheel/bin/regmixup study digits --scale smoke && rm -r "$$PWD"

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regmixup needs Python >= 3.11, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --disable-pip-version-check --quiet --editable .
	@touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --disable-pip-version-check --quiet --editable '.[dev]'
	@touch $@ .venv/installed

.venv/installed-docs: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --disable-pip-version-check --quiet --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv .venv-lowest .venv-wheel dist
