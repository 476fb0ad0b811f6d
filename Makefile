# Thin on purpose: the work is in `python -m torchproof`. Python 3.11 to 3.13.
PYTHON ?= python3
RUN = .venv/bin/python -m

DEVICE ?= cuda
LIMIT ?= 590
# What executing needs beside torch, numpy and sympy, which the machine with the GPU has.
CARRIED = papermill nbclient ipykernel nbformat psutil filelock matplotlib pytest typer rich jinja2 pyyaml onnx onnxscript onnxruntime

.PHONY: book test check benchmark versions carry gpu inventory requirements clean

book: .venv/installed
	$(RUN) torchproof build --device cpu

test: .venv/installed
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) pytest

check: .venv/installed
	$(RUN) torchproof check

# FOLDER holds ordinary notebooks, such as shared/trap-notebooks/good.
benchmark: .venv/installed
	$(RUN) benchmarks $(FOLDER)

# The book on each torch of environments/ and on the pin; records go to evidence/.
versions: .venv/installed
	$(RUN) torchproof versions

# For a machine with a GPU and no network: `make carry CARRY_PYTHON=3.12` here, take the checkout with carry/ there, `make gpu`.
CARRY_PYTHON ?= 3.12
carry: .venv/installed
	rm -rf carry && mkdir carry
	printf '%s\n' $(CARRIED) | .venv/bin/uv pip compile - --constraint requirements.txt --python-version $(CARRY_PYTHON) \
	  --no-header --no-annotate --quiet | grep -vE '^(numpy|sympy|mpmath)' > carry/list.txt
	$(RUN) pip download --quiet --no-deps --only-binary=:all: --python-version $(CARRY_PYTHON) --implementation cp \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_26_x86_64 \
	  --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	  --platform manylinux_2_12_x86_64 --dest carry -r carry/list.txt

# Chapters with gpu cells first; each record is written as its chapter ends. Run it again to go on where time ran out.
# Nothing is fetched. DEVICE=cpu tries it where there is no GPU.
gpu:
	@test -d carry || { echo "carry/ is not here; run make carry where there is a network and bring it along" >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --no-index --no-deps --upgrade --no-compile --target _build/carried carry/*.whl
	PYTHONPATH=_build/carried timeout --signal=TERM $(LIMIT) $(PYTHON) -m torchproof execute --device $(DEVICE)
	PYTHONPATH=_build/carried $(PYTHON) -m torchproof record

.venv/installed: requirements.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(0 if ok else "Python 3.11, 3.12 or 3.13 is needed, this is " + sys.version.split()[0] + "; run: make $(MAKECMDGOALS) PYTHON=python3.13")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch .venv/installed

# torch pins its own CUDA packages exactly, and a CPU build must not pull them in: they are left out.
requirements: .venv/installed
	.venv/bin/uv pip compile requirements.in --universal --python-version 3.11 --no-header --no-annotate --quiet \
	  | grep -vE '^(nvidia|cuda|triton)' | sed '1i # Written by `make requirements` from requirements.in, without the CUDA packages that torch pins itself.' \
	  > requirements.new
	mv requirements.new requirements.txt

clean:
	rm -rf _build
