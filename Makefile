# What a fresh machine needs is installed by name; everything else is cargo.

.PHONY: test check instructions deps fmt

CARGO ?= cargo
# The locks are shuttle's, and everything is built for them, beside the usual build.
EXPLORED = RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle

# Every test, on a machine that may never have seen the project.
test: deps
	$(CARGO) test --workspace --all-features --locked
	$(EXPLORED) $(CARGO) test --package stockade-cache --lib --locked

# What has to be spotless before a commit.
check: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- --deny warnings
	$(EXPLORED) $(CARGO) clippy --package stockade-cache --lib --tests --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --all-features --no-deps --locked
	$(CARGO) test --workspace --all-features --test tidy --locked
	$(CARGO) clippy --manifest-path bench/Cargo.toml --all-targets --locked -- --deny warnings
	scripts/instructions

# What a hit and a miss cost.
instructions: deps
	scripts/instructions

fmt:
	$(CARGO) fmt --all

deps:
	@scripts/install-missing
	@scripts/build-mongodb
	@scripts/install-couchdb
