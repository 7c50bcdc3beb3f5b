package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// edit is one textual change to a file of the module. The old text must be there exactly once.
type edit struct{ file, old, new string }

// build makes the harness's program, whose worker processes run the package as changed. Nothing in the tree is written
// to: the changed files lie over it (go build -overlay).
func build(dir string, edits ...edit) (bin string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	changed := make(map[string]string) // file to text
	for _, e := range edits {
		text, there := changed[e.file]
		if !there {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil && (e.old != "" || !errors.Is(err, fs.ErrNotExist)) {
				return "", err
			}
			text = string(b)
		}
		if e.old == "" {
			changed[e.file] = e.new // a whole file
			continue
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times: the code has moved, and the defect has to be seeded anew",
				e.file, e.old, n)
		}
		changed[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for file, text := range changed {
		over := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(over, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, file)] = over
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o644); err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "chaos")
	c := exec.Command("go", "build", "-overlay", list, "-ldflags=-s -w", "-o", bin, ".")
	c.Dir = filepath.Join(root, "chaos")
	c.Env = append(os.Environ(), "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// moduleRoot is the directory of shunt, whose module the harness stands in.
var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	root := filepath.Dir(filepath.Dir(string(bytes.TrimSpace(out))))
	if _, err2 := os.Stat(filepath.Join(root, "chaos", "defect.go")); err == nil && err2 != nil {
		err = fmt.Errorf("the harness runs in its own directory: %w", err2)
	}
	return root, err
})

// defect is a mistake of package trial that the harness has to catch. It is planted in the process of a worker that is
// started with its name.
type defect struct {
	name string
	// schedule strikes at the place where the mistake shows.
	schedule func(w *world)
	drain    time.Duration
	row      string // that strikes at random, in place of the random mix
	rare     bool   // its occasion is too rare to wait for it: nothing at random is tried
}

// play runs the defect's schedule; planted is its name, or empty for the package as it is.
func (d *defect) play(t testing.TB, s *redistest.Server, planted string) *trial.Verdict {
	t.Helper()
	w := newWorld(t, s, planted)
	d.schedule(w)
	return w.end(cmp.Or(d.drain, 4*time.Second))
}

// defectEnv has the name of the mistake that a worker process is to make.
const defectEnv = "SHUNT_CHAOS_DEFECT"

// defects are those of the fault matrix. Each is caught on its own schedule, which the package as it is passes, and by
// the random mix.
var defects = slices.Concat([]defect{
	{
		name:     "ack before the handler",
		schedule: killHolding,
	},
	{
		name:     "a reaper that does LREM and then LPUSH as two commands",
		schedule: cutReapers,
	},
	{
		name:     "a reaper that ignores the lease",
		schedule: killBesideHolders,
	},
	{
		name:     "no new incarnation after a lost reply",
		schedule: func(w *world) { loseReply(w, trial.PlanRetry, redistest.Command("RPOPLPUSH", "}.prepare")) },
	},
	{
		name:     "a promoter that does ZREM and then LPUSH as two commands",
		schedule: cutPromoters,
	},
	{
		name: "a script that removes first, with a .prepare of the wrong type",
		schedule: func(w *world) {
			w.enqueue(20, trial.PlanOK+"+500")
			w.start(trial.Orders{Workers: 2})
			key := "{" + w.channels[0] + "}.prepare"
			w.server.Do("SET", key, "not shunt's")
			w.struck("wrong type")
			time.Sleep(1200 * time.Millisecond)
			w.server.Do("DEL", key)
		},
		drain: 8 * time.Second,
	},
	{
		name: "an undo without NX",
		schedule: func(w *world) {
			loseReply(
				w,
				trial.PlanAfter+"1500",
				func(args [][]byte) bool { // of a retry, which is still in delay when it is sent again
					return strings.HasPrefix(strings.ToUpper(string(args[0])), "EVAL") &&
						touches(args, "}.doing.") &&
						touches(args, "}.delay")
				},
			)
		},
	},
	{
		name: "one serial for two bare payloads",
		schedule: func(w *world) {
			victim := w.start(trial.Orders{Workers: 1, Lease: time.Second})
			w.enqueue(1, trial.PlanHold+victim.Name)
			w.holds(victim, 1)
			k := "{" + w.channels[0] + "}"
			id := w.channels[0] + "/twin"
			for range 2 {
				if err := w.bare(w.channels[0], id, trial.PlanRetry); err != nil {
					w.Fatal(err)
				}
			}
			// The victim takes no more than it can handle, so its list is filled for it, as a prefetch would.
			keys, _ := w.server.TryDo("KEYS", k+".doing.*")
			list := keys.([]any)[0]
			for range 2 {
				w.server.Do("RPOPLPUSH", k+".prepare", list)
			}
			w.kill(victim)
			w.start(trial.Orders{Workers: 1, Lease: time.Second})
		},
	},
	{
		name:     "a waiter's break without a new incarnation",
		schedule: func(w *world) { loseReply(w, trial.PlanRetry, redistest.Command("BRPOPLPUSH", "}.prepare")) },
	},
	{
		name:     "a sweep without its fence",
		schedule: stopAtSweep,
		drain:    3 * time.Second,
	},
	{
		name:     "an ack of several that does not look what lies there",
		schedule: refuseRetries,
		rare:     true,
	},
	{
		name:     "an ack that does not free its id",
		schedule: endNames,
		row:      "ids",
	},
	{
		name:     "an enqueue that does not look for its receipt",
		schedule: loseEnqueues,
		row:      "ids",
	},
	{
		name:     "a start that does not look for what was cancelled",
		schedule: callOffWaiting,
		row:      "ids",
	},
	{
		name:     "an ack that enqueues what follows although it finds nothing",
		schedule: loseFollows,
		row:      "chains",
	},
	{
		name:     "counts that do not know a flush again",
		schedule: loseTally,
		rare:     true,
	},
}, leaseDefects)

// killHolding kills a process in the midst of its handlers, beside a survivor.
func killHolding(w *world) {
	dying := w.start(trial.Orders{Workers: 8, Lease: time.Second})
	w.enqueue(8, trial.PlanHold+dying.Name)
	w.holds(dying, 8)
	w.start(trial.Orders{Workers: 8, Lease: time.Second})
	w.kill(dying)
}

// cutReapers has each of several reapers cut off and killed when its n-th command about a dead one's lists has been
// executed.
func cutReapers(w *world) { reapers(w, newRand(1), false) }

// killBesideHolders kills one process beside others whose handlers outlast their lease.
func killBesideHolders(w *world) {
	a, b := w.start(trial.Orders{Workers: 4, Lease: time.Second}), w.start(trial.Orders{Workers: 4, Lease: time.Second})
	w.enqueue(8, trial.PlanDeaf+"3500")
	w.until(10*time.Second, "all in hand", func() bool { return w.begun(a.Name)+w.begun(b.Name) >= 8 })
	dying := w.start(trial.Orders{Workers: 4, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(dying.Name, "started") > 0 })
	dying.Kill()
	w.log.Say(trial.Entry{By: dying.Name, Op: trial.Fault, Phase: trial.Info, ID: "kill",
		Due: trial.ForEver}) // it held nothing
	w.forget(dying)
}

// loseReply lets a command be executed and its reply be lost, thrice.
func loseReply(w *world, plan string, match redistest.Match) {
	x := w.start(trial.Orders{Workers: 4, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	for n := range 3 {
		rule := x.proxy.On(match, 1+n, redistest.CutAfter)
		w.until(5*time.Second, "the fault strikes", func() bool {
			w.enqueue(2, plan)
			return rule.Struck() > 0
		})
		w.struck("lost reply", x)
		if !w.drained(3 * time.Second) {
			return
		}
	}
}

// loseTally lets what a worker has counted be added, and the reply be lost.
func loseTally(w *world) {
	x := w.start(trial.Orders{Workers: 4, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	counts := func(args [][]byte) bool { return touches(args, "}.counts") }
	lost := x.proxy.On(counts, 2, redistest.CutAfter) // Redis does not know the script of the first one
	w.until(40*time.Second, "the fault strikes", func() bool {
		w.enqueue(2, trial.PlanOK)
		time.Sleep(50 * time.Millisecond)
		return lost.Struck() > 0
	})
	w.struck("lost reply", x)
}

// refuseRetries refuses the retry of a message that lies among others which are acked.
func refuseRetries(w *world) {
	x := w.start(trial.Orders{Workers: 2, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	for range 3 {
		w.enqueue(2, trial.PlanSlow+"200") // so that what comes meanwhile is taken together
		refused := x.proxy.On(redistest.ByScript(store.Retry)(w.channels[0]), 12,
			redistest.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot"))
		w.enqueue(160, trial.PlanOK, trial.PlanOK, trial.PlanOK, trial.PlanOK, trial.PlanOK, trial.PlanOK,
			trial.PlanRetry, trial.PlanOK)
		w.until(5*time.Second, "the fault strikes", func() bool { return refused.Struck() > 0 })
		w.struck("refused")
		w.drained(5 * time.Second)
	}
}

// cutPromoters loses the reply to each of the first commands of a promotion.
func cutPromoters(w *world) {
	x := w.start(trial.Orders{Workers: 4, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	for n := range 3 {
		rule := x.proxy.On(func(args [][]byte) bool {
			return !strings.EqualFold(string(args[0]), "SUBSCRIBE") && touches(args, "}.delay") &&
				(touches(args, "}.prepare") || strings.HasPrefix(string(args[0]), "Z"))
		}, 1+n, redistest.CutAfter)
		w.until(8*time.Second, "the fault strikes", func() bool {
			w.enqueue(1, trial.PlanOK+"+30")
			time.Sleep(20 * time.Millisecond)
			return rule.Struck() > 0
		})
		w.struck("cut off amid a promotion", x)
	}
}

// entryLives is how long after its last beat an entry is valid.
func entryLives(lease time.Duration) time.Duration { return lease * 4 / 3 }

// stopAtSweep stops the server for longer than a lease while a sweep is on its way, and with it the owner of a lease.
// So what executes the sweep sees that lease over, and its owner comes back at once. No fault excuses that it is
// judged.
func stopAtSweep(w *world) {
	const lease = 2500 * time.Millisecond
	away, judge := w.start(trial.Orders{Workers: 1, Lease: lease}), w.start(trial.Orders{Workers: 1,
		Lease: time.Second})
	for _, x := range []*worker{away, judge} {
		w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	}
	beats := judge.proxy.On(redistest.ByScript(store.Beat)(w.channels[0]), 0, redistest.Pass)
	w.until(5*time.Second, "it beats", func() bool { return beats.Struck() >= 2 })
	stopped := make(chan struct{})
	sweep := func(args [][]byte) bool { // whose text the defect changes, so it is known by its keys
		return strings.HasPrefix(strings.ToUpper(string(args[0])), "EVAL") && touches(args, "}.receivers.dead") &&
			touches(args, "}.suspect")
	}
	judge.proxy.On(sweep, 1, redistest.Call(func() {
		away.proxy.Hole(true)
		_ = away.Stop()
		_, _ = w.server.TryDo("PING") // what had passed the hole is done
		w.server.Stop()
		close(stopped)
	}))
	w.server.Do("PUBLISH", store.KeysOf(w.channels[0]).Delay, "vacant") // which makes it look
	<-stopped
	w.struck("stop the server")
	time.Sleep(entryLives(lease) + 100*time.Millisecond)
	w.server.Cont()
	w.server.Do("PING") // what had come meanwhile is done
	away.proxy.Hole(false)
	_ = away.Cont()
	w.until(5*time.Second, "both are back",
		func() bool { return w.told(away.Name, "handed-over") > 0 && w.told(judge.Name, "handed-over") > 0 })
}
