package shuntprom

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"go.yaml.in/yaml/v2"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// live is the text of a scrape of a Queue that has done a little of all.
func live(t *testing.T) []byte {
	t.Helper()
	b := newBench(t, redistest.Shared(t).URL(), Options{Fleet: true})
	b.c.o.Channels = Only(b.channel)
	kind := shunt.Define(b.channel, func(context.Context, int) error { return errors.New("no") })
	if err := b.Enqueue(t.Context(), kind.Message(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(t.Context(), kind, 2); err != nil {
		t.Fatal(err)
	}
	b.until(shunt.EventRetried, 1)
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.enqueue(b.channel)
	if _, err := b.Pull(t.Context(), shunt.PullOptions{Channels: []string{b.channel}}); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(b.c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.Bytes()
}

// alert is one rule of alerts.yml.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      struct{ Severity string }
	Annotations struct{ Summary, Description string }
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.UnmarshalStrict(read(t, "alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// panel is one of grafana.json.
type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var file struct{ Panels []panel }
	if err := json.Unmarshal(read(t, "grafana.json"), &file); err != nil {
		t.Fatal(err)
	}
	return file.Panels
}

// expressions are all that the alerts and the dashboard ask Prometheus for, by what asks.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, a := range alerts(t) {
		all["alert "+a.Alert] = a.Expr
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$channel", ".+")
	for _, p := range panels(t) {
		for i, target := range p.Targets {
			all[fmt.Sprintf("panel %s, query %d", p.Title, i)] = variables.Replace(target.Expr)
		}
	}
	return all
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	selector = regexp.MustCompile(`(shunt_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z]+)(=~|!=|=)"([^"]*)"`)
)

// finds says whether a text of a scrape has a series of a selector's name and labels, for each value that they allow by
// name.
func finds(text []byte, name, labels string) error {
	find := func(label, value string) error {
		series := regexp.MustCompile(`(?m)^` + name + `(\{.*\})? `)
		if label != "" {
			series = regexp.MustCompile(`(?m)^` + name + `\{(.*,)?` + label + `="` + value + `"`)
		}
		if !series.Match(text) {
			return fmt.Errorf("no series of %s with %s=%q", name, label, value)
		}
		return nil
	}
	errs := []error{find("", "")}
	for _, m := range matcher.FindAllStringSubmatch(labels, -1) {
		values := []string{m[3]}
		if m[3] != ".+" && m[2] == "=~" {
			values = strings.Split(m[3], "|")
		}
		for _, value := range values {
			errs = append(errs, find(m[1], value))
		}
	}
	return errors.Join(errs...)
}

// Each metric that the alerts and the dashboard name is in a scrape, with the labels that they ask for; and each metric
// of a scrape is in the README.
func TestNames(t *testing.T) {
	t.Parallel()
	text := live(t)
	asked := 0
	for who, expr := range expressions(t) {
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			asked++
			if err := finds(text, m[1], m[2]); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
	}
	if asked < 60 {
		t.Errorf("the alerts and the dashboard name %d metrics, want 60 or more", asked)
	}
	readme, dashboard := string(read(t, "README.md")), string(read(t, "grafana.json"))
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllSubmatch(text, -1) {
		name := string(m[1])
		if !strings.Contains(readme, "| `"+name+"` |") {
			t.Errorf("README.md has no row of %s", name)
		}
		if !regexp.MustCompile(name + `(_bucket)?\W`).MatchString(dashboard) {
			t.Errorf("no panel shows %s", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(shunt_[a-z_]+)`").FindAllStringSubmatch(readme, -1) {
		if !bytes.Contains(text, []byte("# TYPE "+m[1]+" ")) {
			t.Errorf("README.md names %s, which no scrape has", m[1])
		}
	}
}

// The test of names finds what is wrong.
func TestFinds(t *testing.T) {
	t.Parallel()
	text := []byte("a_total{channel=\"c\",kind=\"x-y\"} 1\nb 2\n")
	for _, c := range []struct {
		name, labels string
		is           bool
	}{
		{"a_total", "", true}, {"b", "", true}, {"a", "", false}, {"total", "", false},
		{"a_total", `{kind="x-y"}`, true}, {"a_total", `{kind=~"x-y",channel=~".+"}`, true},
		{"a_total", `{kind="x"}`, false}, {"a_total", `{kind=~"x-y|z"}`, false}, {"a_total", `{state="c"}`, false},
		{"b", `{kind="x"}`, false}, {"a_total", `{nel="c"}`, false},
	} {
		if err := finds(text, c.name, c.labels); (err == nil) != c.is {
			t.Errorf("%s%s: %v", c.name, c.labels, err)
		}
	}
}

func TestAlertsAreExplained(t *testing.T) {
	t.Parallel()
	readme := string(read(t, "README.md"))
	for _, a := range alerts(t) {
		if !strings.Contains(readme, "| `"+a.Alert+"` |") {
			t.Errorf("README.md has no row of %s", a.Alert)
		}
		if a.Annotations.Summary == "" || a.Annotations.Description == "" ||
			a.Labels.Severity != "critical" && a.Labels.Severity != "warning" {
			t.Errorf("%s: %+v", a.Alert, a)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Shunt[A-Za-z]+)`").FindAllStringSubmatch(readme, -1) {
		if !bytes.Contains(read(t, "alerts.yml"), []byte("alert: "+m[1]+"\n")) {
			t.Errorf("README.md explains %s, which is none of alerts.yml", m[1])
		}
	}
}

// No panel has another's number, or lies on another.
func TestPanels(t *testing.T) {
	t.Parallel()
	all := panels(t)
	for i, p := range all {
		if p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d is not whole: %+v", p.ID, p)
		}
		a := p.GridPos
		if a.X < 0 || a.X+a.W > 24 {
			t.Errorf("%s lies outside", p.Title)
		}
		for _, o := range all[:i] {
			b := o.GridPos
			if p.ID == o.ID || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s and %s have one number, or lie on each other", p.Title, o.Title)
			}
		}
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	problems, err := promlint.New(bytes.NewReader(live(t))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
