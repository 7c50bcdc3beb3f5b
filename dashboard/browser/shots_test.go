package browser

import (
	"context"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/redistest"
)

var shots = flag.String("shots", "", "write the pictures of the documentation into this directory")

// TestShots makes the pictures of the documentation:
//
//	go test -run TestShots -shots ../../docs/dashboard
func TestShots(t *testing.T) {
	if *shots == "" {
		t.Skip("-shots names no directory")
	}
	start(t)
	s := redistest.Start(t)
	d := deskOn(t, s.Addr())
	d.history(s)
	p := d.shop()
	ctx := context.Background()
	deliver := shunt.Define("webhook.deliver", func(context.Context, any) error { return nil })
	shutdown, err := d.q.Receive(ctx, deliver, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shutdown(ctx) }()
	d.until("all is counted", func() bool {
		all, err := d.q.Overview(ctx, "mail.welcome")
		return err == nil && all[0].Lately.Acked > 0 && all[0].Workers == 4
	})
	if err := os.MkdirAll(*shots, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, screen := range []struct {
		name   string
		width  int64
		height int
		theme  string
	}{{"wide", 1440, 900, "light"}, {"phone", 360, 780, "dark"}} {
		b := d.tab("olga")
		b.screen(screen.width, screen.theme)
		for name, path := range map[string]string{"overview": "", "channel": "channel?c=webhook.deliver",
			"messages": "messages?c=billing.invoice&s=delay&idprefix=invoice:2026-10:411",
			"message":  ref(p.died), "dead": "dead?c=webhook.deliver"} {
			b.open(path)
			var png []byte
			b.do(chromedp.Evaluate("new Promise(done => setTimeout(done, 300))", nil), chromedp.CaptureScreenshot(&png))
			if len(png) > 150<<10 {
				t.Errorf("%s has %d bytes", name, len(png))
			}
			if err := os.WriteFile(filepath.Join(*shots, name+"-"+screen.name+".png"), png, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// history counts an hour of a shop's life, as receivers had done it then: by the script that they use, with the time as
// an argument.
func (d *desk) history(s *redistest.Server) {
	d.Helper()
	source, err := os.ReadFile("../../internal/store/lua/tally.lua")
	if err != nil {
		d.Fatal(err)
	}
	tally := redis.NewScript(5, `
local function clock() return tonumber(ARGV[6]) end
local function printed(n) return string.format('%.0f', n) end
`+string(source))
	c := s.Pool(d.T).Get()
	defer c.Close()
	for channel, rate := range map[string]float64{"mail.welcome": 900, "webhook.deliver": 2400, "image.resize": 140,
		"billing.invoice": 60, "短信.发送": 300} {
		var keys []any
		for _, part := range []string{"counts", "prepare", "suspect", "delay", "dead"} {
			keys = append(keys, "{"+channel+"}."+part)
		}
		for ago := 75; ago >= 0; ago-- {
			x := float64(75 - ago)
			part := 1.0 // of the minute that has begun
			if ago == 0 {
				part = float64(time.Now().Second()) / 60
			}
			load := part * rate * (1 + 0.35*math.Sin(x/9) + 0.12*math.Sin(x*1.7))
			failed := load * (0.02 + 0.12*math.Exp(-math.Pow((x-50)/5, 2)))
			var sums meter.Sums
			sums.Add(meter.Enqueued, int(load))
			sums.Add(meter.Acked, int(load-failed))
			sums.Add(meter.Retried, int(failed))
			for i := range 200 {
				slow := math.Exp(float64(i-100)/40) * (1 + failed/load*8)
				sums.Took(meter.Wait, time.Duration(slow*4e6))
				sums.Took(meter.Handling, time.Duration(slow*35e6))
				sums.Took(meter.EndToEnd, time.Duration(slow*50e6))
			}
			// What waits is noted with the counts, so it has to lie there.
			waits := redis.Args{}.Add("{" + channel + "}.prepare")
			if _, err := c.Do("DEL", waits...); err != nil {
				d.Fatal(err)
			}
			for range int(failed / 2) {
				waits = append(waits, "{}")
			}
			if len(waits) > 1 {
				if _, err := c.Do("RPUSH", waits...); err != nil {
					d.Fatal(err)
				}
			}
			at := time.Now().Add(-time.Duration(ago) * time.Minute).UnixMilli()
			args := append(keys[:len(keys):len(keys)], "history", 76-ago, sums.Append(nil),
				int64(3_600_000), "16000 16000 16000", at)
			if _, err := tally.Do(c, args...); err != nil {
				d.Fatal(err)
			}
		}
		if _, err := c.Do("DEL", keys[1]); err != nil {
			d.Fatal(err)
		}
	}
}
