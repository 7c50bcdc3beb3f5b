package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/lmstfy"
)

const (
	// slack is what a handling may take beside its request.
	slack = 10 * time.Second
	// away is how long a message is put aside whose group is being stopped.
	away = 5 * time.Second
)

// message is a payload that is posted.
type message struct {
	r       *runner
	channel string
	payload []byte
}

func (m *message) Channel() string          { return m.channel }
func (m *message) Marshal() ([]byte, error) { return m.payload, nil }

func (m *message) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &message{r: m.r, channel: m.channel, payload: payload}, nil
}

func (m *message) Timeout() time.Duration {
	s := m.r.settings()
	return s.timeout() + slack
}

func (m *message) MaxAttempts() int {
	s := m.r.settings()
	return s.Attempts
}

func (m *message) Backoff(attempt int) time.Duration {
	s := m.r.settings()
	return s.backoff(attempt)
}

// backoff is the wait after a failed attempt, counted from 1.
func (s *Settings) backoff(attempt int) time.Duration {
	wait := s.BackoffMS
	for i := 1; i < attempt && wait < s.MaxBackoffMS; i++ {
		wait *= 2
	}
	wait = min(wait, s.MaxBackoffMS)
	return time.Duration(wait)*time.Millisecond + jitter(time.Duration(wait)*time.Millisecond/5)
}

// jitter is up to d.
func jitter(d time.Duration) time.Duration { return rand.N(max(d, 1) + 1) }

func (m *message) Resolve(ctx context.Context) error {
	s := m.r.take()
	if s == nil || s.left(false) { // it is being stopped
		if s != nil {
			s.release()
		}
		return shunt.Snooze(away)
	}
	defer s.release()
	i, ok := shunt.FromContext(ctx)
	if !ok {
		i.Channel = m.channel
	}
	body, err := s.body(&i, m.payload)
	if err != nil {
		return err
	}
	need := 0
	if s.group.Result && i.ID != "" {
		need = s.group.MaxAnswer
	}
	a, err := s.post(ctx, &i, idOf(&i, m.payload), body, need)
	m.r.p.Metrics.posted(m.r, &a, err)
	switch {
	case err != nil:
		return fmt.Errorf("push: no answer: %w", err)
	case a.status == http.StatusGone:
		m.r.p.stopGroup(ctx, s, m.channel)
		return shunt.Snooze(away)
	}
	if a.done() && need > 0 && a.cut == nil {
		m.r.setResult(ctx, &i, &a)
	}
	return s.group.verdict(&a, time.Now())
}

// setResult keeps the answer's body.
func (r *runner) setResult(ctx context.Context, i *shunt.Info, a *answer) {
	err := errors.New("it is larger than max_answer")
	if !a.more {
		err = shunt.SetResult(ctx, a.body)
	}
	if err != nil {
		r.p.Log.Warn("push: a result is not kept", "group", r.key.String(), "channel", i.Channel, "id", i.ID,
			"error", err)
	}
}

// verdict is what an answer means; not of 410.
func (s *Settings) verdict(a *answer, now time.Time) error {
	switch {
	case a.done() && a.cut != nil:
		return fmt.Errorf("push: the answer %d broke off: %w", a.status, a.cut)
	case a.done():
		return nil
	}
	err := fmt.Errorf("push: the endpoint answered %d", a.status)
	if text := strings.TrimSpace(string(a.body)); text != "" {
		err = fmt.Errorf("%w: %q", err, text)
	}
	switch {
	case a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable:
		if wait, ok := retryAfter(a.retryAfter, now); ok {
			most := time.Duration(s.MaxRetryAfterMS) * time.Millisecond
			return shunt.RetryAfter(min(max(wait, time.Second), most), err)
		}
	case a.status == http.StatusRequestTimeout || a.status == http.StatusTooEarly:
	case a.status >= 400 && a.status < 500 && s.ClientErrors == Reject:
		return shunt.Reject(err)
	}
	return err
}

// retryAfter reads a Retry-After: seconds or a date. What is longer than a Duration has is its longest.
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	const longest = 1 << 32 // s
	text = strings.TrimSpace(text)
	if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			seconds = longest
		}
		return time.Duration(min(seconds, longest)) * time.Second, true
	}
	at, err := http.ParseTime(text)
	return at.Sub(now), err == nil
}

// body is what is posted of a message.
func (s *sender) body(i *shunt.Info, payload []byte) ([]byte, error) {
	if s.group.Format == Lmstfy {
		return lmstfy.Pushed(i, payload, time.Now())
	}
	return payload, nil
}

// idOf is the webhook-id: the same for all attempts of a message.
func idOf(i *shunt.Info, payload []byte) string {
	if i.Serial != "" {
		return i.Serial
	}
	h := sha256.New()
	h.Write([]byte(i.Channel + "\x00"))
	h.Write(payload)
	return "bare-" + hex.EncodeToString(h.Sum(nil)[:16])
}

func reader(body []byte) io.Reader {
	if len(body) == 0 {
		return http.NoBody
	}
	return bytes.NewReader(body)
}

// escape has bytes that a header cannot have, or that it may change, percent-encoded.
func escape(text string) string {
	if visible(text, "") && !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
