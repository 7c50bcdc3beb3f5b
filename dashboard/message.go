package dashboard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

const (
	// bodyShown bounds the bytes of a payload, or of a result, that a page shows.
	bodyShown = 128 << 10
	// hexShown bounds those that are no text.
	hexShown = 2 << 10
)

type messagePage struct {
	shunt.Entry
	Address   string // its Ref as text
	Status    shunt.Status
	HasStatus bool
	Life      []moment
	Body      body
	Result    body
	Keys      []string // of the headers, sorted
	Verbs     []string
	Back      string // the page after an action that may leave nothing of the message
}

// moment is something in a message's life.
type moment struct {
	Key   string
	At    time.Time // zero: nobody knows when
	Count int
	Text  string
	Level string
}

// body is a payload as a person reads it.
type body struct {
	Kind string // json, form, text, hex or empty
	Text string
	Size int
	Cut  bool
}

// refOf is the message that a request names.
func refOf(text string) (shunt.Ref, error) {
	ref, err := shunt.ParseRef(text)
	if err != nil {
		return ref, refuse(http.StatusBadRequest, "dashboard: ref names no message: %w", err)
	}
	return ref, nil
}

func (q *request) message() error {
	ref, err := refOf(q.form.Get("ref"))
	if err != nil {
		return err
	}
	ctx := q.r.Context()
	e, err := q.q.Peek(ctx, ref)
	if err != nil {
		return err
	}
	if ref = e.Ref(); ref.Serial == "" && ref.ID == "" {
		ref, _ = shunt.ParseRef(q.form.Get("ref"))
	}
	p := messagePage{Address: ref.String(), Verbs: verbsFor(e.State)}
	p.Status, err = q.q.Status(ctx, ref)
	p.HasStatus = err == nil // it may have moved on
	p.Entry = q.masked(e)
	p.Body = readable(p.Entry.Payload, contentType(p.Headers))
	p.Body.Size = e.PayloadSize
	p.Back = "messages?" + url.Values{"c": {e.Channel}, "s": {string(e.State)}}.Encode()
	p.Result = readable(p.Entry.Outcome.Result, "")
	p.Keys = slices.Sorted(maps.Keys(p.Headers))
	p.Life = life(&p.Entry, &p.Status)
	title := p.ID
	if title == "" {
		title = p.Serial
	}
	return q.show("message", q.T("message")+" "+cut(60, title), p)
}

// life tells what has happened to a message, in order.
func life(e *shunt.Entry, s *shunt.Status) (ms []moment) {
	add := func(key string, at time.Time, level, text string) {
		ms = append(ms, moment{Key: key, At: at, Text: text, Level: level})
	}
	count := func(key string, n int) {
		if n > 0 {
			ms = append(ms, moment{Key: key, Count: n, Level: "warn"})
		}
	}
	add("life.enqueued", e.EnqueuedAt, "", "")
	if e.State != shunt.StateDone {
		count("life.attempts", e.Attempts)
	}
	count("life.recoveries", e.Recoveries)
	switch e.State {
	case shunt.StatePrepare:
		add("life.waits", time.Time{}, "now", "")
	case shunt.StateSuspect:
		add("life.suspect", time.Time{}, "warn", "")
	case shunt.StateDelay:
		add("life.due", e.DueAt, "now", "")
	case shunt.StateDoing:
		add("life.doing", s.StartedAt, "now", fmt.Sprintf("%s / %d", e.Receiver, e.Worker))
	case shunt.StateLeased:
		add("life.leased", s.StartedAt, "now", "")
		add("life.leaseends", e.LeaseEndsAt, "", "")
	case shunt.StateDead:
		add("life.died", e.DiedAt, "bad", "") // its failure is on top of the page
	case shunt.StateDone:
		at := e.EndedAt
		if at.IsZero() {
			at = e.Outcome.EndedAt
		}
		add("life.ended", at, "good", string(e.Outcome.Kind))
		if !e.Outcome.KeptUntil.IsZero() {
			add("life.kept", e.Outcome.KeptUntil, "", "")
		}
	}
	if s.Cancelled {
		add("life.cancelled", time.Time{}, "warn", "")
	}
	if !s.UniqueUntil.IsZero() {
		add("life.unique", s.UniqueUntil, "", "")
	}
	return ms
}

func contentType(headers map[string]string) string {
	for key, value := range headers {
		if strings.EqualFold(key, "content-type") {
			kind, _, err := mime.ParseMediaType(value)
			if err == nil {
				return kind
			}
		}
	}
	return ""
}

// readable makes a payload readable, by its content type or by what it looks like.
func readable(b []byte, kind string) body {
	r := body{Size: len(b)}
	if len(b) == 0 {
		return r
	}
	isForm := kind == "application/x-www-form-urlencoded"
	var pretty bytes.Buffer
	switch {
	// Indenting makes much of what is deep; that is shown as it is.
	case !isForm && len(b) <= bodyShown && indented(b) <= 4*bodyShown && json.Indent(&pretty, b, "", "  ") == nil:
		r.Kind, r.Text = "json", pretty.String()
	case isForm && len(b) <= bodyShown:
		v, err := url.ParseQuery(string(b))
		if err != nil {
			return readable(b, "")
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			for _, value := range v[key] {
				fmt.Fprintf(&pretty, "%s = %s\n", key, value)
			}
		}
		r.Kind, r.Text = "form", pretty.String()
	case textual(b[:min(len(b), bodyShown)]):
		if r.Kind, r.Text = "text", string(b); len(b) > bodyShown {
			r.Text, r.Cut = string(b[:bodyShown]), true
		}
	default:
		r.Kind, r.Cut = "hex", len(b) > hexShown
		r.Text = hex.Dump(b[:min(len(b), hexShown)])
	}
	r.Text = strings.ToValidUTF8(r.Text, "\uFFFD")
	return r
}

// indented is about how many bytes indented JSON has.
func indented(b []byte) int {
	n, depth, quoted := len(b), 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			n += 2*depth + 1
		case c == '}' || c == ']':
			depth--
			n += 2*depth + 1
		case c == ',':
			n += 2*depth + 1
		}
	}
	return n
}

// textual says whether bytes are text, the last of which may be cut off.
func textual(b []byte) bool {
	for i := 0; i < len(b); {
		c, n := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError && n <= 1 {
			return len(b)-i < utf8.UTFMax && !utf8.FullRune(b[i:])
		}
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			return false
		}
		i += n
	}
	return true
}

// payload downloads a message's payload, as far as it may be shown.
func (q *request) payload() error {
	ref, err := refOf(q.form.Get("ref"))
	if err != nil {
		return err
	}
	e, err := q.q.Peek(q.r.Context(), ref)
	if err != nil {
		return err
	}
	e = q.masked(e)
	q.w.Header().Set("Content-Type", "application/octet-stream")
	q.w.Header().Set("Content-Disposition", `attachment; filename="payload.bin"`)
	http.ServeContent(q.w, q.r, "", time.Time{}, bytes.NewReader(e.Payload))
	return nil
}
