# Commands are cargo's. The scripts install the packages that the tests need.

.PHONY: audit test stand check bench fuzz mutants book man dist deny api deploy-check instructions deps fmt

CARGO ?= cargo
REPOSITORY ?= $(patsubst %.git,%,$(shell git config --get remote.origin.url))
# Incremental artifacts are half of the target directory, and a build from empty has no use for them.
export CARGO_INCREMENTAL ?= 0
# Compiles the cache with shuttle's locks, whose schedules tests explore.
SHUTTLE = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-with-shuttle

# Runs every test, on a machine that may never have seen the project. Tests of a server that cannot be installed are
# skipped, and named. The four stacks of the stand mostly wait for timers, so they run at the same time, and after the other tests.
test: deps
	$(CARGO) test --workspace --all-features --locked -- --skip stand_ $$(scripts/skip-missing)
	$(CARGO) test --workspace --all-features --locked --test stand -- stand_ordinary --test-threads 4 $$(scripts/skip-missing stand)
	$(SHUTTLE) $(CARGO) test --package stockade-cache --lib --locked

# Drives two users through Stockade, nginx and Varnish in front of nine stock servers and frameworks, and writes
# docs/results/stand. Ten minutes; four of them are a part of `make test`. `make stand NAME=rails`: one of them. What cannot be
# installed is skipped, and named.
STAND = $(CARGO) test --workspace --all-features --locked --test stand --
stand:
	@scripts/install-missing stand
	@scripts/install-stacks all
	STAND_RESULTS=$(CURDIR)/docs/results/stand $(STAND) $(NAME) --test-threads 1 $$(scripts/skip-missing stand)

# Audits the caches of Debian with their defaults and with remedies, newer ones of PyPI, and ours. Writes docs/results/audit. 25 minutes.
audit:
	$(CARGO) build --locked --package stockade
	@scripts/audit-results $(or $(CARGO_TARGET_DIR),target)/debug/stockade

# Checks what has to be spotless before a commit.
check: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- --deny warnings
	$(CARGO) clippy --no-default-features --locked -- --deny warnings
	$(CARGO) clippy --package stockade-cache --lib --profile test --locked -- --cfg shuttle --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --all-features --no-deps --locked
	$(CARGO) test --workspace --all-features --test suite --locked -- tidy:: docs:: reference::
	$(CARGO) clippy --manifest-path bench/Cargo.toml --target-dir target --all-targets --locked -- --deny warnings
	scripts/instructions

# Lists the benches; `make bench NAME=hits` runs one, or several (`NAME="hits proxy"`), or all (`NAME=all`), and writes
# bench/RESULTS.md. SITTINGS=3: fewer sittings than five. Peers that are programs are installed by package name.
BENCH = $(CARGO) run --quiet --release --manifest-path bench/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target/bench) --locked --
# `make bench NAME=smoke`: a tiny sitting of each, in three minutes with its build, to see that they work; writes nothing.
bench:
	@$(if $(NAME),scripts/install-missing bench)
	@$(BENCH) $(if $(filter smoke,$(NAME)),--smoke,$(NAME)) $(if $(SITTINGS),--sittings $(SITTINGS))

# Runs each fuzz target for ten seconds (`make fuzz SECONDS=60`: longer). Stable Rust is enough.
fuzz:
	scripts/fuzz $(or $(SECONDS),10)

# Changes the code of the lines that differ from BASE, one small change (a mutant) at a time, and lists those with which all tests of their
# crate pass. `make mutants BASE=HEAD~1`: of the last commit; `TESTS=--lib`: with the unit tests alone, which is many times faster.
BASE ?= origin/main
mutants:
	@command -v cargo-mutants >/dev/null || { echo "cargo-mutants is missing: cargo install cargo-mutants --locked" >&2; exit 1; }
	@mkdir -p target/mutants
	git diff $$(git merge-base $(BASE) HEAD) -- '*.rs' >target/mutants/change.diff
	CARGO_INCREMENTAL=1 $(CARGO) mutants --in-diff target/mutants/change.diff --all-features $(if $(TESTS),--cargo-arg=$(TESTS)) \
		--exclude '**/explored.rs' --output target/mutants -- --locked

# Builds the book into target/book. Links to files outside of docs/ become links to the repository.
book:
	@command -v mdbook >/dev/null || { echo "mdbook is missing: cargo install mdbook --locked" >&2; exit 1; }
	mdbook build
	find target/book -name '*.html' -exec sed -E -i \
		's#href="(\.\./)+(bench|crates|decisions|deploy|experiments|[A-Z]+\.html)#href="$(REPOSITORY)/blob/main/\2#g; s#(blob/main/[^"]*)\.html#\1.md#g' {} +

# Writes the manual pages of the program and of its commands into target/man. Read one: `man -l target/man/stockade-load.1`.
STOCKADE = $(CARGO) run --quiet --package stockade --locked --
man:
	mkdir -p target/man
	$(STOCKADE) man >target/man/stockade.1
	set -e; for command in $$(sed -n 's/^stockade\\-\(.*\)(1)$$/\1/p' target/man/stockade.1); do \
		$(STOCKADE) man "$$command" >"target/man/stockade-$$command.1"; done

# Builds the packages of a release into target/packages, for Linux on x86-64. Twenty minutes. `scripts/try-packages` then installs each.
dist:
	scripts/dist

# The checks of cargo-deny, advisories included. `make check` tests bans, licences and sources without it.
deny:
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: cargo install cargo-deny --locked" >&2; exit 1; }
	$(CARGO) deny --locked check

# Compares the public API of the cache with its last release on the registry, and refuses a breaking change without a version.
api:
	@command -v cargo-semver-checks >/dev/null || { echo "cargo-semver-checks is missing: cargo install cargo-semver-checks --locked" >&2; exit 1; }
	$(CARGO) semver-checks --package stockade-cache --all-features

# Checks deploy/ by the schemas of Kubernetes, Compose and Nomad. `make test` checks the commands in it.
deploy-check:
	scripts/check-deploy

# Counts the instructions of a hit and a miss of the cache, and of a hit of the proxy.
instructions: deps
	scripts/instructions

fmt:
	$(CARGO) fmt --all

deps:
	@scripts/install-missing
	@scripts/build-mongodb || echo "MongoDB cannot be built: its tests are skipped" >&2
	@scripts/install-couchdb || echo "CouchDB cannot be installed: its tests are skipped" >&2
	@scripts/install-stacks
