# What a fresh machine needs is installed by name; everything else is cargo.

.PHONY: test check deps fmt

CARGO ?= cargo

# Every test, on a machine that may never have seen the project.
test: deps
	$(CARGO) test --workspace --locked
	$(CARGO) test --package stockade-cache --lib --features shuttle --locked

# What has to be spotless before a commit.
check: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(CARGO) clippy --package stockade-cache --all-targets --features shuttle --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) test --package stockade --test tidy --locked

fmt:
	$(CARGO) fmt --all

deps:
	@scripts/install-missing
