// Reports is one evening of two offices that share a timetable, in a quarter of a minute:
//
//	go run ./example/reports
//	go run ./example/reports -redis redis://localhost:6379
//
// The offices are two processes, east and west: the first starts the second, and each line says in which of them
// something happens. It shows, an act each: a report every second, by a cron line that both run, with no tick doubled
// or left out (package recur). A report is asked for in both at once and made once (ID). A customer waits in one
// process for what the other makes (Retain, SetResult, Wait). Reports are cancelled, while they wait and while they are
// made (Cancel). Each report that is made is filed, and that follows in one step with its ack (Then). The lines with a
// dot are events.
//
// Ctrl-C ends it in good order. Without -redis or REDIS_URL it brings a small Redis along. Times are those of Berlin.
// It clears what an earlier run has left: run it once at a time on a Redis.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"

	"github.com/shuntmq/shunt/example/internal/server"
)

func main() {
	url := flag.String(
		"redis",
		"",
		"`URL` of a Redis, by default $REDIS_URL; without either, a server inside this process",
	)
	second := flag.String("second", "", "be the second process, by this `name`, until the standard input ends")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "reports: there are no arguments but -redis URL")
		os.Exit(2)
	}
	if *url == "" {
		*url = os.Getenv("REDIS_URL")
	}
	var err error
	if *second != "" {
		err = follow(*url, *second)
	} else {
		err = lead(*url)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reports:", err)
		os.Exit(1)
	}
}

// lead is the first process: it starts the second, and directs the acts.
func lead(url string) error {
	name := ""
	if url == "" {
		mini, err := miniredis.Run() // the second process needs its address
		if err != nil {
			return fmt.Errorf("start a server: %w", err)
		}
		defer mini.Close()
		url, name = "redis://"+mini.Addr(), ", a server inside this process (no -redis, no REDIS_URL)"
	}
	s, err := server.Open(url)
	if err != nil {
		return err
	}
	defer s.Close()
	o, err := newOffice(s, "east")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	fmt.Printf("reports: using %s%s\n", s.Name, name)
	return newTour(o, url).play(ctx)
}

// follow is the second process.
func follow(url, name string) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // which may be sent to both: the first decides
	s, err := server.Open(url)
	if err != nil {
		return err
	}
	defer s.Close()
	o, err := newOffice(s, name)
	if err != nil {
		return err
	}
	if err = o.open(context.Background(), o.visit); err == nil {
		_, err = io.Copy(io.Discard, os.Stdin) // ends with the first process, however that ends
	}
	last, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.close(last)
	return errors.Join(err, o.q.Close())
}
