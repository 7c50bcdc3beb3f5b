package store

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// About is what a receiver tells of itself. Only people read it. Its text has the form of a URL's query, so that what
// another version adds does no harm.
type About struct {
	Host           string
	PID            int
	Program        string // the file name of its executable
	Version, Shunt string // of the program's main module, and of this one
	Started        time.Time
	Busy           []Busy
}

// Busy is a message whose handler has been at work for long.
type Busy struct {
	Worker     int
	Serial, ID string // each may be empty
	Since      time.Time
}

const (
	// AboutFor is how long a text stays that is not renewed: longer than a dead receiver is listed.
	AboutFor = 2 * time.Hour

	maxAbout = 4 << 10 // bytes of a text, as far as Busy goes; what stands before it has less than half of that
	maxBusy  = 64      // of a text
	maxName  = 128     // bytes of one of the names in it
)

// Text is the receiver without what it is busy with. Its times are those of its host's clock.
func (a About) Text() string {
	v := url.Values{"pid": {strconv.Itoa(a.PID)}, "started": {strconv.FormatInt(a.Started.UnixMilli(), 10)}}
	for name, text := range map[string]string{
		"host": a.Host, "program": a.Program, "version": a.Version, "shunt": a.Shunt,
	} {
		if text != "" {
			v.Set(name, text[:min(len(text), maxName)])
		}
	}
	return v.Encode()
}

// WithBusy is a text with those that have been at work longest, as many as it may have.
func WithBusy(text string, busy []Busy) string {
	slices.SortFunc(busy, func(a, b Busy) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Worker, b.Worker))
	})
	for _, b := range busy[:min(len(busy), maxBusy)] {
		one := "&busy=" + url.QueryEscape(fmt.Sprintf("%d %d %s %s", b.Worker, b.Since.UnixMilli(), b.Serial, b.ID))
		if len(text)+len(one) > maxAbout {
			break
		}
		text += one
	}
	return text
}

// parseAbout reads a text, and puts its times to the server's clock. Of what is none of shunt's it knows nothing.
func parseAbout(text string) (a About) {
	v, err := url.ParseQuery(text)
	here, there := instant(v.Get("now")), instant(v.Get("at")) // one moment, by the host's clock and the server's
	if err != nil || here.IsZero() || there.IsZero() {
		return a
	}
	at := func(ms string) time.Time {
		if t := instant(ms); !t.IsZero() {
			return t.Add(there.Sub(here))
		}
		return time.Time{}
	}
	a = About{Host: v.Get("host"), Program: v.Get("program"), Version: v.Get("version"), Shunt: v.Get("shunt"),
		Started: at(v.Get("started"))}
	a.PID, _ = strconv.Atoi(v.Get("pid"))
	for _, text := range v["busy"] {
		part := strings.SplitN(text, " ", 4)
		if len(part) < 4 {
			continue
		}
		b := Busy{Since: at(part[1]), Serial: part[2], ID: part[3]}
		if b.Worker, err = strconv.Atoi(part[0]); err == nil && !b.Since.IsZero() {
			a.Busy = append(a.Busy, b)
		}
	}
	return a
}

// instant is a time in ms since 1970; zero where that is no number.
func instant(ms string) time.Time {
	if n, err := strconv.ParseInt(ms, 10, 44); err == nil {
		return time.UnixMilli(n)
	}
	return time.Time{}
}

// AddAbout has an incarnation tell a text, if its entry is there; now is by the clock of the text. It may be sent
// again.
func AddAbout(c *link.Call, k *Keys, i Incarnation, text string, now time.Time) {
	text = fmt.Sprintf("%s&now=%d", text, now.UnixMilli())
	c.AddScript(SetAbout, 2, k.Receivers, k.About(i), i.Name, text, AboutFor.Milliseconds())
}

// AddDropAbout takes away what an incarnation has told, whose entry is gone.
func AddDropAbout(c *link.Call, k *Keys, i Incarnation) { c.Add("DEL", k.About(i)) }

// Abouts are what some incarnations have told, as far as the asker may read it.
func Abouts(ctx context.Context, a Asker, k *Keys, of []Known) ([]About, error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		for _, i := range of {
			c.Add("GETRANGE", k.About(i.Incarnation), 0, 2*maxAbout)
		}
	})
	if err != nil {
		return nil, err
	}
	all := make([]About, len(of))
	for i, rep := range replies {
		text, _ := redis.String(rep.Any(), rep.Err)
		all[i] = parseAbout(text)
	}
	return all, nil
}
