package store

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// What an incarnation tells comes back as it was, by the server's clock. One whose entry is gone tells nothing.
func TestAbout(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		tell := func(text string, now time.Time) int {
			n, _ := f.run(func(c *link.Call) { AddAbout(c, f.k, f.i, text, now) }).Value.(int64)
			return int(n)
		}
		told := func() About {
			f.Helper()
			all, err := Abouts(ctx, f, f.k, []Known{{Incarnation: f.i}})
			f.must(err)
			return all[0]
		}
		if a := told(); a.Host != "" || a.Busy != nil {
			f.Fatalf("nothing was told: %+v", a)
		}
		now := time.Now()
		skewed := now.Add(-time.Hour) // by the clock of its host
		want := About{Host: "a&at=1 b=\xff\n%", PID: 4711, Program: "shop", Version: "v1.2.0", Shunt: "(devel)",
			Started: skewed.Add(-time.Minute)}
		id := "&busy= \x00\xfe of "
		busy := []Busy{{2, "", "", skewed.Add(-time.Second)}, {1, "01KAV9", id, skewed.Add(-time.Minute)}}
		if tell(WithBusy(want.Text(), busy), skewed) != 1 {
			f.Fatal("nothing was told")
		}
		a := told()
		near := func(at time.Time, ago time.Duration) bool { return (now.Sub(at) - ago).Abs() < 10*time.Second }
		if a.Host != want.Host || a.PID != 4711 || a.Program != "shop" || a.Version != "v1.2.0" ||
			a.Shunt != "(devel)" || !near(a.Started, time.Minute) || len(a.Busy) != 2 {
			f.Fatalf("%+v", a)
		}
		if first, second := a.Busy[0], a.Busy[1]; first.Worker != 1 || first.Serial != "01KAV9" || first.ID != id ||
			!near(first.Since, time.Minute) || second.Worker != 2 || second.Serial+second.ID != "" ||
			!near(second.Since, time.Second) {
			f.Fatalf("%+v", a.Busy)
		}
		if ms := time.Duration(f.length("PTTL", f.k.About(f.i))) * time.Millisecond; ms <= 0 || ms > AboutFor {
			f.Fatalf("it stays for %v", ms)
		}
		for _, text := range []string{"", "not shunt's", "pid=1&now=1", "now=x&at=y", "%", "now=1&at=2&busy=1",
			"now=1&at=2&busy=x+1++", "now=1&at=2&started=99999999999999999999&busy=1+x++"} {
			f.s.Do("SET", f.k.About(f.i), text)
			if a := told(); a.Busy != nil || a.PID != 0 || !a.Started.IsZero() {
				f.Fatalf("%q: %+v", text, a)
			}
		}
		f.run(func(c *link.Call) { AddDropAbout(c, f.k, f.i) })
		f.s.Do("LPUSH", f.k.About(f.i), "a list")
		replies, _, _ := f.Ask(ctx, "", func(c *link.Call) { c.Add("GETRANGE", f.k.About(f.i), 0, 1) })
		if all, err := Abouts(ctx, refusing{replies}, f.k, []Known{{Incarnation: f.i}}); err != nil || all[0].PID != 0 {
			f.Fatalf("%+v %v", all, err)
		}
		if tell("pid=1", now) != 1 || told().PID != 1 {
			f.Fatal("a key of another type is in the way")
		}
		f.run(func(c *link.Call) { AddUnregister(c, f.k, f.i) })
		f.run(func(c *link.Call) { AddDropAbout(c, f.k, f.i) })
		if tell("pid=1", now) != 0 || f.length("EXISTS", f.k.About(f.i)) != 0 {
			f.Fatal("one whose entry is gone has told something")
		}
	})
}

// refusing answers with what was answered before, and leaves errors to the caller.
type refusing struct{ replies []link.Reply }

func (r refusing) Ask(context.Context, string, func(*link.Call)) ([]link.Reply, bool, error) {
	return r.replies, false, nil
}

// However many are busy, and whatever their names are, a text has a bound; those that are busy longest are in it.
func TestAboutBounds(t *testing.T) {
	t.Parallel()
	host, _ := os.Hostname()
	long := strings.Repeat("\xff", 1000)
	for name, about := range map[string]About{"plain": {Host: host},
		"long": {Host: long, Program: long, Version: long, Shunt: long}} {
		for _, id := range []string{"", "order-4711", strings.Repeat("\x01", 255)} {
			var busy []Busy
			now := time.Now()
			for i := range 10_000 {
				busy = append(busy, Busy{i, "01KAV9Z6Q4M5T0R8Y2X3W7V1NB", id, now.Add(-time.Duration(i) * time.Second)})
			}
			text := WithBusy(about.Text(), busy)
			a := parseAbout(fmt.Sprintf("%s&now=%d&at=%[2]d", text, now.UnixMilli()))
			most, least := maxBusy, 2
			if len(id) < 20 && name == "plain" {
				least = 40
			}
			if len(text) > maxAbout || len(a.Busy) < least || len(a.Busy) > most || a.Busy[0].Worker != 9999 {
				t.Errorf("%s, %d bytes of id: %d bytes, %d busy", name, len(id), len(text), len(a.Busy))
			}
		}
	}
}
