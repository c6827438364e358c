"""Execute the notebooks of docs/notebooks anew and write their outputs: `make notebooks`.

    python docs/make_notebooks.py [NAME ...]

A kernel runs each from top to bottom, one thread, in an empty folder that lies beside results/ as docs/notebooks does.
What it writes has no times, names of machines or versions, so executing it again changes nothing but what was computed
differently. tests/test_notebooks.py runs the same cells at the sizes in each notebook's `metadata.small`.
"""

import base64
import io
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parent.parent
NOTEBOOKS = Path(__file__).parent / "notebooks"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def execute(path: Path) -> None:
    """Run a notebook at its full size and rewrite it."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "docs" / "notebooks"
        place.mkdir(parents=True)
        (Path(folder) / "results").symlink_to(ROOT / "results")
        client = NotebookClient(
            notebook, timeout=600, record_timing=False, coalesce_streams=True, resources={"metadata": {"path": place}}
        )
        client.execute()
    write(path, notebook)


def write(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Write a notebook without what depends on the machine."""
    small = notebook.metadata.get("small", {})
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}, "small": small}
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number:02d}"
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
        for output in cell.get("outputs", []):
            output.pop("metadata", None)
            if output.output_type != "stream":
                output["metadata"] = {}
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = pixels_alone(output.data["image/png"])
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def pixels_alone(encoded: str) -> str:
    """Return a PNG file in base64 without its comments, in which matplotlib writes its version and address."""
    stored = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as image:
        image.info.clear()
        image.save(stored, "PNG", optimize=True)
    return base64.b64encode(stored.getvalue()).decode()


if __name__ == "__main__":
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, where there are no widgets
    os.environ["OMP_NUM_THREADS"] = "1"  # sums in the same order on every machine with the same instructions
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            execute(path)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
