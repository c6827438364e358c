#!/bin/sh
# Installs a browser for the tests of the report's page, if there is none. Never fails: without a browser those tests are
# skipped, and say so.
cd "$(dirname "$0")/../.." || exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable chrome-headless-shell; do
    command -v "$name" >/dev/null && exit 0
done
ls .venv/browsers/*/*/*headless*shell >/dev/null 2>&1 && exit 0

echo "installing a browser for the tests of the page"
root=""
[ "$(id -u)" = 0 ] || root="sudo -n"
if command -v apt-get >/dev/null && $root true 2>/dev/null; then
    $root apt-get install -y --no-install-recommends chromium >/dev/null 2>&1 && exit 0
    $root apt-get update >/dev/null 2>&1 && $root apt-get install -y --no-install-recommends chromium >/dev/null 2>&1 && exit 0
fi
# Without the right to install packages: a browser in a folder of its own.
.venv/bin/pip install --disable-pip-version-check --quiet playwright >/dev/null 2>&1 &&
    PLAYWRIGHT_BROWSERS_PATH=.venv/browsers .venv/bin/playwright install --only-shell chromium >/dev/null 2>&1 && exit 0
echo "no browser could be installed: the tests of the page in a browser will be skipped"
