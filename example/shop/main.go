// Shop is a small shop with its dashboard, to look at and to show around:
//
//	go run .
//
// Orders lead to payments, and these to parcels, invoices and mails. Read messages.go first: it has the types of
// messages, their handlers and receivers. This file has the Queue, the pages and the shutdown. The rest is scenery.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/dashboard"
	"github.com/shuntmq/shunt/example/internal/server"
)

var (
	addr     = flag.String("addr", "127.0.0.1:8417", "`host:port` of the pages, for this host alone; port 0: any")
	redisURL = flag.String("redis", "", "`URL` of a Redis; without it the shop brings one, which ends with the shop")
	rate     = flag.Float64("rate", 20, "orders a second on average, 0.1 to 500")
	quiet    = flag.Bool("quiet", false, "print no reports and no faults")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run is the program. What it opens it closes in reverse order.
func run(ctx context.Context) error {
	if !(*rate >= 0.1 && *rate <= 500) || flag.NArg() > 0 {
		return errors.New("-rate is 0.1 to 500, and there are no arguments: see -h")
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return fmt.Errorf("%w: -addr 127.0.0.1:0 takes a free port", err)
	}
	redis, err := server.OpenOwn(*redisURL)
	if err != nil {
		return err
	}
	defer redis.Close()

	s := &shop{world: &world{began: time.Now(), rate: *rate}}
	s.q = &shunt.Queue{ // the client, one in each process; its fields are the configuration
		Pool:        redis.Pool,
		MaxAttempts: 4,
		Backoff:     func(attempt int) time.Duration { return rand.N(time.Second << attempt) }, // with jitter
		Events: func(e shunt.Event) { // all that happens, for logs and metrics; failed messages are usual here
			if e.Kind == shunt.EventReceiverError || e.Kind == shunt.EventDisconnected {
				say("%s: %v", e.Kind, e.Err)
			}
		},
	}
	defer s.q.Close()
	if err := s.open(ctx); err != nil {
		return err
	}

	desk := dashboard.Handler(s.q, dashboard.Options{Pool: redis.Pool, Title: "shop"})
	mux := http.NewServeMux()
	mux.Handle("/shunt/", desk)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) })
	mux.HandleFunc("POST /{$}", s.buy)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var others sync.WaitGroup
	others.Go(func() { _ = web.Serve(listener) }) // its error says that the server was closed
	others.Go(func() { s.customers(ctx) })
	fmt.Printf(welcome, listener.Addr(), listener.Addr(), redis.Name)

	<-ctx.Done()
	fmt.Println("\nThe shop closes: what has begun may end.")
	patience, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = errors.Join(desk.Close(), web.Close())
	others.Wait()
	// After that second handlers are told to stop, and their messages go back to their channels.
	if e := s.q.Shutdown(patience); e != nil {
		fmt.Println(e)
	}
	return errors.Join(err, s.q.Close())
}

func say(format string, args ...any) {
	if !*quiet {
		fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
}

const welcome = `The shop is open:  http://%s/shunt/

Look first at the channels of the overview. Payments fail and are tried again: open "shop.payments", then its dead
letters. They are grouped by failure, and "Retry" brings a group back. From 0:45 to 1:25 of each five minutes the
provider is down. From 1:00 to 3:00 of each eight a truck blocks the warehouse, and "shop.stock" has a backlog.
Buy something yourself:  http://%s/
Redis: %s. Ctrl-C ends it all.

`

const page = `<!doctype html><meta name="viewport" content="width=device-width"><title>shop</title>
<body style="font:1.2em sans-serif"><h1>A shop</h1><p><a href="shunt/">The dashboard</a></p>
<form method="post"><button style="font:inherit">Buy something</button></form>`

// buy enqueues an order and waits for its result, which comes from whichever process handles the order.
func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	o := s.next()
	outcome, err := s.q.EnqueueAndWait(r.Context(), s.vip.Message(o), shunt.Retain(time.Hour))
	if err != nil {
		http.Error(w, "shop: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, `%s<p>Order %s: %s. <a href="shunt/message?ref=%s">See what became of it</a></p>`, page, o.ID,
		outcome.Result, url.QueryEscape(s.vip.ByID(o.ID).String()))
}
