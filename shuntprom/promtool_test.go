package shuntprom

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"
)

// promtool runs promtool, where there is one.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("PROMTOOL"), "promtool"))
	if err != nil {
		if os.Getenv("REQUIRE_PROMTOOL") == "1" {
			t.Fatal(err)
		}
		t.Skip("there is no promtool (Debian's package prometheus has it)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("should")) {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Parallel()
	t.Run("metrics", func(t *testing.T) {
		t.Parallel()
		promtool(t, live(t), "check", "metrics")
	})
	t.Run("alerts", func(t *testing.T) {
		t.Parallel()
		promtool(t, nil, "check", "rules", "alerts.yml")
	})
	t.Run("alerts fire", func(t *testing.T) {
		t.Parallel()
		promtool(t, nil, "test", "rules", filepath.Join("testdata", "alerts_test.yml"))
	})
	t.Run("dashboard", func(t *testing.T) { // as rules, which promtool can read
		t.Parallel()
		type rule struct{ Record, Expr string }
		var rules []rule
		for _, expr := range expressions(t) {
			rules = append(rules, rule{fmt.Sprint("r", len(rules)), expr})
		}
		type group struct {
			Name  string
			Rules []rule
		}
		text, err := yaml.Marshal(map[string][]group{"groups": {{"g", rules}}})
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "rules.yml")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, nil, "check", "rules", name)
	})
}
