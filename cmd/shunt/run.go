package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shuntmq/shunt"
)

// closing is how long children may take to end that handle nothing.
const closing = 5 * time.Second

// run handles messages until ctx ends and all handlers have, or the grace is over, and gives the exit status. It calls
// stop when ctx has ended.
func (w *work) run(ctx context.Context, stop func(), to io.Writer) int {
	defer w.pool.Close()
	log := &logLines{to: to, whole: w.Stderr == "failures"}
	if w.Stderr == "all" {
		w.box.Stderr = log
	}
	// The Queue's grace is longer than that of a child, so that a failure has the child's last lines.
	q := &shunt.Queue{Pool: w.pool, Grace: 2 * time.Second, Events: log.event}
	shares := make([]shunt.Share, len(w.Channel))
	for i, name := range w.Channel {
		shares[i] = shunt.Share{Prototype: w.box.Message(name), Weight: 1}
	}
	shutdown, err := q.ReceiveWeighted(context.WithoutCancel(ctx), w.n, shares...)
	if err != nil {
		log.say("it cannot receive: %v", err)
		_ = q.Close()
		return exitFailed
	}
	log.say("it receives %s with %d workers: %s", names(w.Channel), w.n, names(w.Command))
	<-ctx.Done()
	stop() // before it is told, for then a second signal may come
	log.say("it ends, and waits up to %v for handlers", w.grace)
	grace, cancel := context.WithTimeout(context.Background(), w.grace)
	defer cancel()
	status := exitOK
	if err := shutdown(grace); err != nil {
		var s *shunt.ShutdownError
		if errors.As(err, &s) && s.Returned+s.Running == 0 {
			log.say("all handlers have ended; Redis was not told, and finds out by itself: %v", s.Err)
		} else {
			log.say("the grace is over: %v", err)
			status = exitGrace
		}
	}
	children, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := w.box.Close(children); err != nil {
		log.say("%v", err)
		status = exitGrace
	}
	_ = q.Close() // the receiver has told its error above
	if status == exitOK {
		log.say("all handlers have ended")
	}
	return status
}

// names are texts in one line.
func names(all []string) (line string) {
	for i, name := range all {
		if i > 0 {
			line += " "
		}
		line += printable(name)
	}
	if len(line) > 200 {
		line = fmt.Sprintf("%s… (%d)", printable(line[:200]), len(all))
	}
	return line
}
