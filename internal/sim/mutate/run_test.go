package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The runner is held against a module with three functions: what the binary runs finds what is wrong in one, the unit
// tests what is wrong in another, and nothing what is wrong in the third.
func TestRun(t *testing.T) {
	p := sampleOf(t, `package sample

var n int

func add() { n = 3 }

func other() { n = 9 }

func third() { n = 1 }
`, `import "testing"`,
		"func TestAdd(t *testing.T) { if add(); n != 3 { t.Fatal(n) } }",
		"func TestOther(t *testing.T) { n = 0; if other(); n == 0 { t.Fatal(n) } }")
	ms := p.byGroup["."]
	r := &runner{pool: p, pkg: ".", args: []string{"-test.run", "TestAdd"}, limit: time.Minute, times: 2, workers: 1,
		controlled: make(map[string]bool),
		known:      map[string]string{ms[3].key(): "it may be"}}
	path := filepath.Join(t.TempDir(), "out.json")
	play := func(ms []*mutant, resume bool) *table {
		t.Helper()
		out, err := openTable(path, resume)
		if err == nil {
			err = r.run(t.Context(), ms, out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := play(ms[:1], false)
	if o, _ := first.outcome(ms[0]); o.Status != caught || o.How != "TestAdd: sample_test.go:3: 0" {
		t.Errorf("%+v", o)
	}
	if _, err := openTable(path, false); err == nil {
		t.Error("a table is overwritten")
	}
	r.unit = true
	all := play(ms, true)
	for i, want := range []string{caught, caught, caughtByUnit, explained, survived, survived} {
		var passed []string
		switch want {
		case caughtByUnit:
			passed = []string{binary}
		case survived:
			passed = []string{binary, rootPkg}
		}
		if o, _ := all.outcome(ms[i]); o.Status != want || !slices.Equal(o.Passed, passed) {
			t.Errorf("%s: %+v", ms[i].id(), o)
		}
	}
	if len(ms) != 6 || len(all.all) != 6 {
		t.Errorf("%d mutants, %d outcomes", len(ms), len(all.all))
	}
	r.args = []string{"-test.run", "TestThird"} // a test that has come since
	test := filepath.Join(p.tree.Root, "third_test.go")
	text := "package sample\n\nimport \"testing\"\n\n" +
		"func TestThird(t *testing.T) { if third(); n != 1 { t.Fatal(n) } }\n"
	if err := os.WriteFile(test, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if o, _ := play(ms, true).outcome(ms[5]); o.Status != survived {
		t.Errorf("judged again: %+v", o)
	}
	r.again = true
	if o, _ := play(ms, true).outcome(ms[5]); o.Status != caught {
		t.Errorf("not judged again: %+v", o)
	}
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "out.md")); err != nil || len(text) < 200 {
		t.Errorf("%s %v", text, err)
	}
}

// The cheapest judge is the first.
func TestJudges(t *testing.T) {
	r := &runner{unit: true}
	for group, want := range map[string][]string{
		"internal/lane": {"./internal/lane", binary, rootPkg},
		luaDir:          {"./internal/store", binary, rootPkg},
		".":             {binary, rootPkg},
	} {
		var got []string
		for cost := range dear + 1 {
			if judge, is := r.judge(&mutant{group: group}, cost); is {
				got = append(got, judge)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", group, got)
		}
	}
}

// A test that fails by itself now and then judges nothing.
func TestControl(t *testing.T) {
	p := sampleOf(t, "package sample\n\nvar n int\n\nfunc add() { n = 3 }\n", `import ("os"; "testing")`,
		`func TestAdd(t *testing.T) { // each second time
	if os.Remove("mark") != nil {
		os.WriteFile("mark", nil, 0o644)
		return
	}
	t.Fatal("flaky")
}`)
	r := &runner{pool: p, pkg: ".", limit: time.Minute, times: 2, workers: 1, controlled: make(map[string]bool)}
	out, err := openTable(filepath.Join(t.TempDir(), "out.json"), false)
	if err == nil {
		err = r.run(t.Context(), p.byGroup["."][:1], out)
	}
	if err == nil || len(out.all) != 0 {
		t.Errorf("%v: %+v", err, out.all)
	}
}

func TestFailure(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.01s)\n    a_test.go:3: 4\n    a_test.go:4: more\nFAIL\n": "TestA: a_test.go:3: 4",
		"ok so far\npanic: test timed out after 1s\n\trunning tests\n":               "panic: test timed out after 1s",
		"# a/b\n./x.go:3:4: undefined: y\n":                                          "./x.go:3:4: undefined: y",
		"nothing to see\n":                                                           "exit status 2",
	} {
		if got := failure([]byte(out), errors.New("exit status 2")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := failure([]byte("panic: no"), nil); got != "" {
		t.Errorf("a success says %q", got)
	}
}
