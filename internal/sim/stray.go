package sim

import (
	"maps"
	"strconv"
	"strings"
	"time"

	redigo "github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// lying is an element in the list of a receiver that beats.
type lying struct{ list, raw string }

// lies is all that lies there in the lull of a cycle. A channel with a foreign key is left out: a worker keeps for a
// minute what Redis refuses to take from it.
func (w *world) lies(c int) map[lying]bool {
	all := make(map[lying]bool)
	for _, channel := range w.plot.channels() {
		if w.foreign(c, channel) != "" {
			continue
		}
		keys, _ := redigo.Strings(w.do("KEYS", "{"+channel+"}.doing.*"))
		for _, key := range keys {
			name, _ := workerOf(key)
			ends, err := redigo.Int64(w.do("ZSCORE", store.KeysOf(channel).Receivers, name))
			if err != nil || ends < time.Now().UnixMilli() {
				continue
			}
			raws, _ := redigo.Strings(w.do("LRANGE", key, 0, -1))
			for _, raw := range raws {
				all[lying{key, raw}] = true
			}
		}
	}
	return all
}

// workerOf is whose list a key is: the incarnation, and the worker's number.
func workerOf(list string) (incarnation string, worker int) {
	_, of, _ := strings.Cut(list, ".doing.")
	dot := strings.LastIndex(of, ".")
	worker, _ = strconv.Atoi(of[dot+1:])
	return of[:dot], worker
}

// strayed finds what lies where it lay since a time in a calm, although its worker had no handler since then. The audit
// looks every 5 s, and again after 1 s, so the receiver has put it back in a calm that has lasted for longer.
func (w *world) strayed(c int, was map[lying]bool, since time.Time) {
	is := w.lies(c)
	maps.DeleteFunc(was, func(l lying, _ bool) bool { return !is[l] })
	if len(was) == 0 {
		return
	}
	type worker struct {
		of string // a process
		n  int
	}
	owner, running, busy := make(map[string]string), make(map[worker]int), make(map[worker]bool)
	for _, e := range w.said.Entries() {
		at := worker{e.By, e.N}
		begins := e.Op == trial.Handle && e.Phase == trial.Invoke
		switch {
		case begins:
			running[at]++
			busy[at] = true
		case e.Op == trial.Handle:
			running[at]--
			busy[at] = running[at] > 0 || !e.At.Before(since)
		}
		if begins || e.Op == "started" || e.Op == "handed-over" {
			name, _, _ := strings.Cut(e.Note, " ")
			owner[name] = e.By
		}
	}
	for l := range was {
		name, n := workerOf(l.list)
		if by := owner[name]; by != "" && !busy[worker{by, n}] {
			w.problem("I7 stray: %s lies in %s since %s, and %s has it in no hand", trial.MessageIn([]byte(l.raw)),
				l.list, since.Format(clock), by)
		}
	}
}
