# Thin on purpose: the work is in `python -m torchproof`. Python 3.11 to 3.13.
PYTHON ?= python3
RUN = .venv/bin/python -m

.PHONY: book test check benchmark requirements clean

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

.venv/installed: requirements.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(0 if ok else "Python 3.11, 3.12 or 3.13 is needed, this is " + sys.version.split()[0] + "; run: make $(MAKECMDGOALS) PYTHON=python3.13")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch .venv/installed

# torch pins its own CUDA packages exactly, and a CPU build must not pull them in: they are left out.
requirements: .venv/installed
	.venv/bin/python -m pip install --quiet uv
	.venv/bin/uv pip compile requirements.in --universal --python-version 3.11 --no-header --no-annotate --quiet \
	  | grep -vE '^(nvidia|cuda|triton)' | sed '1i # Written by `make requirements` from requirements.in, without the CUDA packages that torch pins itself.' \
	  > requirements.new
	mv requirements.new requirements.txt

clean:
	rm -rf _build
