package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shuntmq/shunt"
)

// answer is what a child says of a message: a line of JSON. A nil pointer is a key that is not there.
type answer struct {
	N            *int64  `json:"n"`
	OK           *bool   `json:"ok"`
	Result       *string `json:"result"`
	ResultBase64 *string `json:"result_base64"`
	Retry        *string `json:"retry"`
	AfterMS      *int64  `json:"after_ms"`
	Reject       *string `json:"reject"`
	SnoozeMS     *int64  `json:"snooze_ms"`
}

// longest is 34 years in ms: shunt bounds what is longer than it waits.
const longest = 1 << 40

// verdict is what Resolve does with an answer.
type verdict struct {
	err    error  // what Resolve returns
	result []byte // nil: none
}

// decodeAnswer reads the answer to message n of a child. An error says what the line should have been.
func decodeAnswer(line []byte, n int64) (v verdict, err error) {
	var a answer
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields() // a misspelt key must not be a verdict without it
	if err := d.Decode(&a); err != nil {
		return v, err
	}
	if _, err := d.Token(); err != io.EOF {
		return v, errors.New("more than one JSON value in a line")
	}
	switch {
	case a.N == nil:
		return v, errors.New(`no "n": an answer repeats the n of its message`)
	case *a.N != n:
		return v, fmt.Errorf(`"n" is %d, and the message's is %d: want one answer for each message`, *a.N, n)
	}
	return a.verdict()
}

// verdict demands exactly one verdict, and none but its own keys.
func (a *answer) verdict() (v verdict, err error) {
	verdicts := 0
	for _, there := range []bool{a.OK != nil, a.Retry != nil, a.Reject != nil, a.SnoozeMS != nil} {
		if there {
			verdicts++
		}
	}
	switch {
	case verdicts != 1:
		return v, fmt.Errorf(`%d verdicts: want one of "ok", "retry", "reject" and "snooze_ms"`, verdicts)
	case a.OK == nil && (a.Result != nil || a.ResultBase64 != nil):
		return v, errors.New(`a result without "ok"`)
	case a.Retry == nil && a.AfterMS != nil:
		return v, errors.New(`"after_ms" without "retry"`)
	case a.AfterMS != nil && *a.AfterMS < 0:
		return v, fmt.Errorf(`"after_ms" is %d: want 0 or more`, *a.AfterMS)
	case a.SnoozeMS != nil:
		if *a.SnoozeMS < 0 {
			return v, fmt.Errorf(`"snooze_ms" is %d: want 0 or more`, *a.SnoozeMS)
		}
		v.err = shunt.Snooze(ms(*a.SnoozeMS))
	case a.Reject != nil:
		v.err = shunt.Reject(reason(*a.Reject, "rejected by the child"))
	case a.Retry != nil:
		if v.err = reason(*a.Retry, "to be tried again, says the child"); a.AfterMS != nil {
			v.err = shunt.RetryAfter(ms(*a.AfterMS), v.err)
		}
	case !*a.OK:
		return v, errors.New(`"ok" is false: want true, or "retry" or "reject" with the reason`)
	case a.Result != nil && a.ResultBase64 != nil:
		return v, errors.New(`both "result" and "result_base64": want one`)
	case a.Result != nil:
		v.result = []byte(*a.Result)
	case a.ResultBase64 != nil:
		if v.result, err = base64.StdEncoding.DecodeString(*a.ResultBase64); err != nil {
			return v, fmt.Errorf(`"result_base64": %w`, err)
		}
	}
	return v, nil
}

func ms(n int64) time.Duration { return time.Duration(min(n, longest)) * time.Millisecond }

func reason(text, otherwise string) error {
	if text == "" {
		text = otherwise
	}
	return errors.New(text)
}
