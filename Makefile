# make test    what CI runs: every test of every module, all but those of bench and
#              of the browser under the race detector, then the seeds of the
#              simulation that are this tree's, then each fuzz target for FUZZTIME
# make sim     SEEDS new seeds of the simulation, on goroutines that are made to
#              interleave badly; SEED=n begins with that one, and SIM='-sim.shrink
#              NAME' has more flags of internal/sim
# make lint    gofmt, go vet, for what speaks to the system on three of them,
#              staticcheck
# make bench   the benchmarks
# make chaos   the whole fault matrix at length, and the random mix; writes
#              docs/reliability.md and its data. ROUNDS=n rounds a row, SEED=n,
#              TIME=90s of each mix, MIXES=20; ONLY='F1,F2*,cells,mix,defects'
#              runs a part, and then writes nothing
#
# The tests run on a real redis-server: the one REDIS_SERVER names, else the
# one in PATH. On Debian and Ubuntu, root gets it installed where there is
# none; NO_INSTALL=1 forbids that. The clients' tests run on the python3 and
# the php that PYTHON and PHP name, those of the dashboard in the chromium that
# CHROMIUM names, and those of the alerts on the promtool that PROMTOOL names:
# else those in PATH, installed likewise. Where there is none they are skipped;
# REQUIRE_CLIENTS=1 forbids that.

GO          ?= go
FUZZTIME    ?= 2s
SEEDS       ?= 200
SEED        ?= 0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# ./... stops at a nested go.mod, so each module takes its turn; the root first.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/.*/*' -not -path '*/testdata/*')))

BROWSER := ./dashboard/browser

# Those with code of their own for a system.
SYSTEMS := . ./sandbox ./daemon ./cmd/shunt
# The packages with files that are not for it. What Windows lacks may be anywhere; what macOS lacks is in these.
own = $(GO) list -f '{{if .IgnoredGoFiles}}{{.ImportPath}}{{end}}' ./...

# A workspace raises every module to the newest dependency that any one of them
# asks for. Users get what each go.mod says, so that is what is tested.
export GOWORK := off
export REQUIRE_CLIENTS

# REDIS_SERVER tells the tests that a real server is there, so they may not skip it.
with-redis = REDIS_SERVER=$$(sh .ci/redis-server.sh); export REDIS_SERVER

# These are empty where there is none to be had.
with-languages = PYTHON=$$(sh .ci/language.sh PYTHON python3); PHP=$$(sh .ci/language.sh PHP php php-cli); \
	CHROMIUM=$$(sh .ci/language.sh CHROMIUM chromium); \
	PROMTOOL=$$(sh .ci/language.sh PROMTOOL promtool prometheus); \
	export PYTHON PHP CHROMIUM PROMTOOL

.PHONY: test race seeds sim fuzz lint bench chaos
.NOTPARALLEL:

test: race seeds fuzz

# -count=1: the cache knows neither the server nor luck with a race. -parallel:
# most tests wait for a lease or a connection, not for a core. Those of the fault
# harness have processes of their own: 16 at once take as long as 8, and miss their
# bounds. A module's first package goes alone: its leases would feel what the
# others compute.
# -short: what is long there is for make chaos. bench is built without the race
# detector, as the snippets are: its peers take longer to compile than all of
# shunt. So is browser, of which dashboard has it: it waits for Chromium, beside
# dashboard and what comes after that. At the end it prints what tests have to tell
# although they passed.
race:
	@set -e; $(with-redis); $(with-languages); REDISTEST_TELLS=$$(mktemp); export REDISTEST_TELLS; \
	export GO='$(GO)'; gotest="sh $$PWD/.ci/gotest.sh"; \
	seen=$$(mktemp); trap 'wait; cat $$REDISTEST_TELLS; rm -f $$REDISTEST_TELLS $$seen' EXIT; \
	for dir in $(filter-out ./chaos $(BROWSER),$(MODULES)); do \
		echo "== go test $$dir"; \
		race=-race at=8; case $$dir in .) at=12;; ./bench) race=;; \
		./dashboard) (cd $(BROWSER) && $$gotest -short -count=1 -parallel=8 -timeout=10m ./...) >$$seen 2>&1 & browser=$$!;; \
		esac; \
		(cd $$dir && $(GO) list ./... | { read -r first; \
			$$gotest $$race -short -count=1 -parallel=$$at -timeout=10m "$$first" && \
			xargs -r $$gotest $$race -short -count=1 -parallel=8 -timeout=10m; }); \
	done; \
	echo "== go test $(BROWSER)"; wait $$browser || failed=1; cat $$seen; [ -z "$$failed" ]; \
	echo "== go test -race chaos"; \
	cd chaos && $$gotest -race -short -count=1 -parallel=6 -timeout=15m ./...

# The seeds of this tree: new ones with each change of code, and the same ones
# wherever that change is tested, so that what fails can be played again.
seeds:
	@$(MAKE) --no-print-directory sim SEEDS=200 SEED=$$(find . \( -name '*.go' -o -name '*.lua' \) -not -path './.*' | \
		LC_ALL=C sort | xargs cat | cksum | cut -d ' ' -f 1)

# Virtual time needs no race detector to be slow: it would cost nine tenths of the
# seeds. A few are played under it with the other tests.
sim:
	@set -e; dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; over=$$($(GO) run ./internal/sim/disturb/weave -o $$dir); \
	$(GO) test -overlay $$over -count=1 -timeout 0 -run 'TestSeeds|TestKept|TestSameStory|TestClocks' ./internal/sim -v -args \
		-sim.seeds $(SEEDS) -sim.seed $(SEED) $(SIM)

# A core each, and as many at once as there are cores.
fuzz:
	@set -e; $(with-redis); export GO='$(GO)'; \
	grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z]*' . | sed 's|/[^/]*:func | |' | LC_ALL=C sort | \
	while read -r dir name; do echo "$$dir $$name $(FUZZTIME)"; done | \
	xargs -n 3 -P "$$(getconf _NPROCESSORS_ONLN)" sh .ci/fuzz.sh

# gofmt comes from the toolchain go.mod selects, not from PATH: versions differ.
# vet needs no C compiler without cgo, so it reaches the other systems too.
# staticcheck runs by version and stays out of every go.mod.
lint:
	@echo "== gofmt"; \
	files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted:"; echo "$$files"; exit 1; fi
	@set -e; for dir in $(MODULES); do \
		systems=linux; case " $(SYSTEMS) " in *" $$dir "*) systems="linux darwin windows";; esac; \
		for os in $$systems; do \
			echo "== go vet $$dir ($$os)"; \
			(cd $$dir; export CGO_ENABLED=0 GOOS=$$os; pkgs=./...; if [ $$os = darwin ]; then pkgs=$$($(own)); fi; \
			[ -z "$$pkgs" ] || $(GO) vet $$pkgs); \
		done; \
		echo "== staticcheck $$dir"; \
		(cd $$dir && $(GO) run $(STATICCHECK) ./...); \
	done

bench:
	cd bench && $(GO) run .

chaos:
	@set -e; $(with-redis); export ROUNDS='$(ROUNDS)' SEED='$(SEED)' TIME='$(TIME)' MIXES='$(MIXES)' ONLY='$(ONLY)'; \
	cd chaos && $(GO) run .
