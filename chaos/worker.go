package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/trial"
)

// ordersEnv tells a process that it is a worker, and of what kind.
const ordersEnv = "SHUNT_CHAOS_ORDERS"

func init() {
	if text := os.Getenv(ordersEnv); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// die kills this process.
func die() {
	self, _ := os.FindProcess(os.Getpid())
	_ = self.Kill()
	select {}
}

// process has the orders of a worker process, as its parent passes them on.
type process struct {
	trial.Orders
	URL   string
	Dir   string // of the ledgers
	Clock string // by how much it is wrong, in a build that has such a clock
}

// work is a worker process. It ends in order at SIGTERM or when it is told "stop", and at once when its parent is gone.
func work(text string) error {
	var o process
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	o.Die = die
	if name := os.Getenv(defectEnv); name != "" {
		d, err := trial.Plant(name)
		if err != nil {
			return err
		}
		if d.Mislead != nil {
			d.Mislead(&o.Orders)
		}
	}
	log, _, err := openLedger(o.Dir, o.Name)
	if err != nil {
		return err
	}
	pool, err := shunt.NewPool(o.URL)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go func() { // and goes on, for goroutines are counted
		for range terms {
			stop()
		}
	}()
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			if in.Text() == "stop" {
				stop()
			}
		}
		os.Exit(2)
	}()
	goroutines := runtime.NumGoroutine()
	log.Say(trial.Entry{Op: trial.Count, Phase: trial.Invoke, ID: "goroutines", N: goroutines},
		trial.Entry{Op: trial.Count, Phase: trial.Invoke, ID: "connections"})
	q := o.Queue(pool, log)
	wrong := new(atomic.Bool) // the clock has been seen to be
	if tell := q.Events; o.Clock != "" && tell != nil {
		q.Events = func(e shunt.Event) {
			if time.Since(e.Time.Round(0)).Abs() > time.Minute {
				wrong.Store(true)
			}
			e.Time = time.Time{} // the ledger's own is right
			tell(e)
		}
	}
	if o.Enqueue > 0 {
		o.Load(life, q, log)
		return q.Close()
	}
	shutdown, err := o.Begin(life, q, log)
	if shutdown == nil {
		return errors.Join(err, q.Close())
	}
	<-life.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = shutdown(ctx)
	if err2 := q.Close(); err == nil {
		err = err2
	}
	pool.Close() // of what is idle there: it is the user's
	left, stacks := settled(goroutines)
	used := pool.Stats() // a dial that was under way may have outlived Close for a moment, as goroutines may
	if err == nil && o.Clock != "" && !wrong.Load() {
		err = errors.New("the clock was never wrong")
	}
	if err != nil {
		log.Say(trial.Entry{Op: trial.Unclean, Phase: trial.Fail, Note: err.Error()})
		return err
	}
	log.Say(trial.Entry{Op: trial.Count, Phase: trial.OK, ID: "goroutines", N: left, Note: stacks},
		trial.Entry{Op: trial.Count, Phase: trial.OK, ID: "connections", N: used.ActiveCount - used.IdleCount},
		trial.Entry{Op: trial.Closed, Phase: trial.OK})
	return nil
}

// settled is how many goroutines there are once those that are ending are gone; it waits a second at most. If there are
// more than before it also says what they do.
func settled(before int) (left int, stacks string) {
	left = runtime.NumGoroutine()
	for end := time.Now().Add(time.Second); left > before && time.Now().Before(end); left = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	if left > before {
		text := make([]byte, 16<<10)
		stacks = string(text[:runtime.Stack(text, true)])
	}
	return left, stacks
}
