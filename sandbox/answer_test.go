package sandbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
)

func TestDecodeAnswer(t *testing.T) {
	t.Parallel()
	for line, wrong := range map[string]string{
		`{"n":7,"ok":true}`:                                  "",
		` {"ok":true,"n":7} `:                                "",
		`{"n":7,"ok":true}` + "\r":                           "",
		`{"n":7,"ok":true,"result":""}`:                      "",
		`{"n":7,"retry":""}`:                                 "",
		`{"n":7,"retry":"x","after_ms":9223372036854775807}`: "",
		`{"n":7,"snooze_ms":0}`:                              "",
		``:                                                   "EOF",
		`null`:                                               `no "n"`,
		`[]`:                                                 "cannot unmarshal array",
		`{"n":7}`:                                            "0 verdicts",
		`{"n":8,"ok":true}`:                                  `"n" is 8`,
		`{"n":"7","ok":true}`:                                "cannot unmarshal string",
		`{"n":7,"ok":false}`:                                 `"ok" is false`,
		`{"n":7,"ok":true,"retry":"x"}`:                      "2 verdicts",
		`{"n":7,"ok":true,"after_ms":1}`:                     `"after_ms" without "retry"`,
		`{"n":7,"retry":"x","after_ms":-1}`:                  `"after_ms" is -1`,
		`{"n":7,"retry":"x","after_ms":1.5}`:                 "cannot unmarshal number",
		`{"n":7,"snooze_ms":-1}`:                             `"snooze_ms" is -1`,
		`{"n":7,"reject":"x","result":"x"}`:                  `a result without "ok"`,
		`{"n":7,"ok":true,"result":{"a":1}}`:                 "cannot unmarshal object",
		`{"n":7,"ok":true,"result":"x","result_base64":"eA=="}`: "both",
		`{"n":7,"ok":true,"result_base64":"?"}`:                 "illegal base64",
		`{"n":7,"ok":true,"rseult":"x"}`:                        `unknown field "rseult"`,
		`{"n":7,"ok":true}{"n":8,"ok":true}`:                    "more than one JSON value",
		`{"n":7,"ok":tr`:                                        "unexpected EOF",
	} {
		_, err := decodeAnswer([]byte(line), 7)
		if text := ""; err != nil || wrong != "" {
			if err != nil {
				text = err.Error()
			}
			if wrong == "" || !strings.Contains(text, wrong) {
				t.Errorf("%s: %q, want %q", line, text, wrong)
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	verdictOf := func(line string) verdict {
		v, err := decodeAnswer([]byte(line), 7)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	if v := verdictOf(`{"n":7,"ok":true,"result_base64":"AAH/"}`); v.err != nil || string(v.result) != "\x00\x01\xff" {
		t.Errorf("%+v", v)
	}
	if v := verdictOf(`{"n":7,"ok":true,"result":"é"}`); v.err != nil || string(v.result) != "é" {
		t.Errorf("%+v", v)
	}
	if v := verdictOf(`{"n":7,"ok":true}`); v.err != nil || v.result != nil {
		t.Errorf("%+v", v)
	}
	v := verdictOf(`{"n":7,"retry":"busy","after_ms":1500}`)
	if after, ok := custody.Delays(v.err); !ok || after != 1500*time.Millisecond || v.err.Error() != "busy" {
		t.Errorf("%+v", v)
	}
	if v := verdictOf(`{"n":7,"retry":"x","after_ms":9223372036854775807}`); !later(v.err) {
		t.Errorf("%+v", v)
	}
	v = verdictOf(`{"n":7,"retry":"busy"}`)
	if _, delays := custody.Delays(v.err); delays || v.err.Error() != "busy" {
		t.Errorf("%+v", v)
	}
	if v := verdictOf(`{"n":7,"reject":""}`); !custody.Rejects(v.err) || v.err.Error() != "rejected by the child" {
		t.Errorf("%+v", v)
	}
	if v := verdictOf(`{"n":7,"snooze_ms":1500}`); v.err == nil || !strings.Contains(v.err.Error(), "1.5s") {
		t.Errorf("%+v", v)
	}
}

// later says that a wait is long, and has not become negative.
func later(err error) bool {
	after, ok := custody.Delays(err)
	return ok && after > 24*time.Hour
}

// No answer panics or is two verdicts, whatever its bytes are.
func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{"n":7,"ok":true,"result":"x"}`))
	f.Add([]byte(`{"n":7,"retry":"x","after_ms":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		v, err := decodeAnswer(line, 7)
		if v.err != nil && v.result != nil {
			t.Errorf("%q: %+v", line, v)
		}
		if err != nil && errors.Is(err, ErrAnswer) {
			t.Error("the kind is the child's to add")
		}
	})
}
