package sim

import (
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// lull waits for the lull of a cycle, and looks at it in its midst and a second before its end.
func (w *world) lull(c int) {
	w.sleepUntil(time.Duration(c)*cycle + storm + shots)
	calm, lay := time.Now(), w.lies(c)
	w.sleepUntil(time.Duration(c)*cycle + storm + shots + half)
	w.suspected()
	w.heldByNobody(c)
	e := trial.Entry{Op: trial.Quiet, Phase: trial.Info, Due: calm}
	if channel, delayed := w.lulled(c); delayed {
		e.ID, e.Note = channel, trial.LaterOnly
	} else {
		e.ID = channel
	}
	w.log.Say(e)
	w.sleepUntil(time.Duration(c+1)*cycle - time.Second)
	w.heldByNobody(c) // also what was killed amid the calm has been found by now
	w.strayed(c, lay, calm)
}
