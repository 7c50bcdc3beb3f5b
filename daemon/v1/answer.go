package v1

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	writeTimeout = 30 * time.Second // of an answer
	tooMuch      = "too many bytes of bodies and answers at once"
)

// answer writes JSON. The error is the connection's.
func (c *call) answer(status int, v any) error { return c.write(status, "application/json", v) }

func (c *call) write(status int, kind string, v any) error {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		c.complain("write an answer", err)
		b.Reset()
		status, kind = http.StatusInternalServerError, "application/problem+json"
		_ = to.Encode(internal.problem(""))
	}
	return c.send(status, kind, b.Bytes())
}

// send writes a body, with writeTimeout for all of it. The Budget counts it meanwhile.
func (c *call) send(status int, kind string, body []byte) error {
	c.budget.Hold(len(body))
	defer c.budget.Return(len(body))
	control := c.expire(writeTimeout)
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		if _, err := c.w.Write(body); err != nil {
			return err
		}
	}
	return control.Flush() // a client that has left by now may have read it
}

// room says whether messages may be read for an answer. Else it has answered.
func (c *call) room() bool {
	full := c.budget.Full()
	if full {
		c.refuse(busy, tooMuch)
	}
	return !full
}

// nothing answers 204.
func (c *call) nothing() {
	c.expire(writeTimeout)
	c.w.WriteHeader(http.StatusNoContent)
}

// expire bounds what is written from now on.
func (c *call) expire(d time.Duration) *http.ResponseController {
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(d)) // a recorder of tests has none
	return control
}

// accepts says whether an answer of one of some types is welcome, and which comes first. Types are in small letters.
func accepts(header []string, offered ...string) (kind string, ok bool) {
	if len(header) == 0 {
		return offered[0], true
	}
	best := 0.0
	for _, one := range offered {
		if q := quality(header, one); q > best {
			kind, best = one, q
		}
	}
	return kind, best > 0
}

// quality is how welcome a type is: that of the most specific range that has it.
func quality(header []string, kind string) float64 {
	family, _, _ := strings.Cut(kind, "/")
	best, rank := 0.0, 0
	for _, line := range header {
		for of := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(of, ";")
			at := 0
			switch strings.ToLower(strings.TrimSpace(name)) {
			case kind:
				at = 3
			case family + "/*":
				at = 2
			case "*/*":
				at = 1
			}
			if at <= rank {
				continue
			}
			best, rank = 1, at
			for p := range strings.SplitSeq(params, ";") {
				if key, value, _ := strings.Cut(strings.TrimSpace(p), "="); strings.EqualFold(key, "q") {
					if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
						best = q
					}
				}
			}
		}
	}
	return best
}
