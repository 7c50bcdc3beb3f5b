package sim

import (
	"slices"
	"strconv"
	"time"

	redigo "github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// lull waits for the lull of a cycle, and looks at it in its midst and a second before its end.
func (w *world) lull(c int) {
	w.sleepUntil(w.plot.lullAt(c))
	calm, lay := time.Now(), w.lies(c)
	w.sleepUntil(w.plot.lullAt(c) + half + w.plot.gathers())
	w.suspected()
	w.heldByNobody(c)
	e := trial.Entry{Op: trial.Quiet, Phase: trial.Info, Due: calm}
	if channel, delayed := w.lulled(c); delayed {
		e.ID, e.Note = channel, trial.LaterOnly
	} else {
		e.ID = channel
	}
	w.log.Say(e)
	w.sleepUntil(w.plot.cycleAt(c+1) - time.Second)
	w.heldByNobody(c) // also what was killed amid the calm has been found by now
	w.strayed(c, lay, calm)
}

// heldByNobody finds, amid a calm, lists whose receiver is not among the living any more, or has not beaten for long. A
// handover may come amid any calm, by a message whose take breaks the connection: what it left a moment ago is not
// counted.
func (w *world) heldByNobody(c int) {
	for _, channel := range w.plot.channels() {
		if key := w.foreign(c, channel); w.plot.Lossy || key != "" && key != "delay" {
			continue
		}
		k := store.KeysOf(channel)
		dead, _ := redigo.Strings(w.do("ZRANGE", k.DeadReceivers, 0, -1))
		keys, _ := redigo.Strings(w.do("KEYS", "{"+channel+"}.doing.*"))
		for _, key := range keys {
			name, _ := workerOf(key)
			if slices.ContainsFunc(dead, func(d string) bool { return justLeft(d, name) }) {
				continue
			}
			if at, err := redigo.Int64(w.do("ZSCORE", k.Receivers, name)); err == redigo.ErrNil ||
				err == nil && at < time.Now().UnixMilli() {
				w.problem("I7 held by nobody: %s in the midst of a calm", key)
			}
		}
	}
}

// justLeft says whether a member of receivers.dead is an incarnation that was superseded within the last second.
func justLeft(member, incarnation string) bool {
	d, err := store.ParseDeadReceiver(member)
	if err != nil || d.Name != incarnation || !d.Superseded {
		return false
	}
	ms, err := strconv.ParseInt(d.Death, 10, 64)
	return err == nil && time.Since(time.UnixMilli(ms)) < time.Second
}
