#!/usr/bin/env bash
# Makes .venv with everything the demo and the tests need. Safe to run again; does nothing when up to date.
# With the argument `browser` it also looks for Chromium, in which the tests open the pages of `vyre report`.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

command -v "$python" >/dev/null || {
  echo "setup: $python was not found. Fix: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)." >&2
  exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: $("$python" --version) is too old. Fix: install Python 3.11 or newer and run make PYTHON=/path/to/it." >&2
  exit 1
}
# Debian's python3 comes without ensurepip, which venv needs.
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing python3-venv"
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
  else
    echo "setup: $python cannot make virtual environments. Fix: sudo apt-get install python3-venv" >&2
    exit 1
  fi
fi

# WebGPU needs a driver: a GPU's, or Mesa's for the processor. Without one its tests are skipped, or fail where CI=true.
has_driver() {
  [ "$(uname)" = Linux ] || return 0
  local named="${VK_DRIVER_FILES:-}:${VK_ICD_FILENAMES:-}"
  for file in {/usr/share,/etc,/usr/local/share,"${HOME:-}/.local/share"}/vulkan/icd.d/*.json ${named//:/ }; do
    [ -e "$file" ] && return 0
  done
  return 1
}
install_driver() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  echo "setup: installing mesa-vulkan-drivers"
  apt-get update -qq && apt-get install -y -qq mesa-vulkan-drivers >/dev/null
}
if ! has_driver && ! install_driver; then
  echo "setup: no Vulkan driver was found, so backend 'webgpu' cannot run." >&2
  echo "Fix: install your GPU's, or one for the processor: sudo apt-get install mesa-vulkan-drivers" >&2
fi

# Chromium is for a few tests only: without it they are skipped, or fail where CI=true.
has_browser() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
}
install_browser() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  echo "setup: installing chromium"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null
}
if [ "${1:-}" = browser ] && ! has_browser >/dev/null && ! install_browser; then
  echo "setup: no Chromium was found, so the tests that open pages cannot run." >&2
  echo "Fix: sudo apt-get install chromium" >&2
fi

stamp=.venv/.ready
wanted=$(cat pyproject.toml scripts/setup.sh | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
  exit 0
fi
echo "setup: preparing .venv (once)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
printf '%s' "$wanted" > "$stamp"
