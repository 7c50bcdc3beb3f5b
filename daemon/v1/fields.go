package v1

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// fields are the values of a part of a request: parameters with Shunt- headers, or an object of its body. Each value
// that is read is checked, and what is wrong becomes a fault of the call. After the last read, end tells what nobody
// has read.
type fields struct {
	c    *call
	at   string // of an object: a JSON pointer that ends in a slash
	raw  map[string]json.RawMessage
	text map[string]text // of parameters
	read map[string]bool
}

// text is the value of a parameter, and where it stood.
type text struct{ value, in, name string }

const headerPrefix = "Shunt-"

// parameters are those of the query, and of headers if headers is set: Shunt-Delay-Ms is delay_ms. Names that begin
// with "header." and headers that begin with Shunt-Header- are a message's headers.
func (c *call) parameters(headers bool) *fields {
	f := &fields{c: c, text: make(map[string]text), read: map[string]bool{"token": true}}
	if c.operator {
		f.read["pool"] = true
	}
	for name, values := range c.query {
		switch {
		case len(values) > 1:
			c.fault("query", name, "it is given more than once")
		case !utf8.ValidString(name) || !utf8.ValidString(values[0]):
			c.fault("query", strings.ToValidUTF8(name, "?"), "it is not UTF-8")
		}
		f.text[name] = text{values[0], "query", name}
	}
	for name, values := range c.r.Header {
		short, is := strings.CutPrefix(name, headerPrefix)
		if !is {
			continue
		}
		if !headers {
			c.fault("header", name, "the route has no such header")
			continue
		}
		value, err := url.PathUnescape(values[0])
		switch {
		case len(values) > 1:
			c.fault("header", name, "it is given more than once")
		case err != nil || !utf8.ValidString(value):
			c.fault("header", name, "want percent-encoded UTF-8: a % itself is %25")
		}
		key := strings.ReplaceAll(strings.ToLower(short), "-", "_")
		if of, is := strings.CutPrefix(short, "Header-"); is {
			key = headerPart + strings.ToLower(of)
		}
		if other, has := f.text[key]; has {
			c.fault("header", name, "it is in the "+other.in+", too")
		}
		f.text[key] = text{value, "header", name}
	}
	return f
}

// headerPart begins parameters that are headers of a message.
const headerPart = "header."

func (f *fields) fault(name, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if t, is := f.text[name]; is {
		f.c.fault(t.in, t.name, detail)
	} else if f.text != nil {
		f.c.fault("query", name, detail)
	} else {
		f.c.fault("body", f.at+pointer(name), detail)
	}
}

// pointer is a name as JSON pointers have it.
func pointer(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// has says whether a value is given.
func (f *fields) has(name string) bool {
	_, text := f.text[name]
	_, raw := f.raw[name]
	return text || raw
}

// string reads text.
func (f *fields) string(name string) (value string, ok bool) {
	f.read[name] = true
	if t, is := f.text[name]; is {
		return t.value, true
	}
	raw, is := f.raw[name]
	if !is {
		return "", false
	}
	if raw[0] != '"' || json.Unmarshal(raw, &value) != nil {
		f.fault(name, "want text")
		return "", false
	}
	return value, true
}

// short reads text of 1 to most bytes; empty: none is given.
func (f *fields) short(name string, most int) string {
	value, ok := f.string(name)
	if ok && (value == "" || len(value) > most) {
		f.fault(name, "it has %d bytes: want 1 to %d", len(value), most)
	}
	return value
}

// integer reads a whole number within bounds; absent: otherwise.
func (f *fields) integer(name string, otherwise, least, most int64) int64 {
	f.read[name] = true
	digits, given := "", false
	if t, is := f.text[name]; is {
		digits, given = t.value, true
	} else if raw, is := f.raw[name]; is {
		digits, given = string(raw), true
	}
	if !given {
		return otherwise
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	plain := err == nil && digits == strconv.FormatInt(n, 10)
	if !plain || n < least || n > most {
		f.fault(name, "want a whole number from %d to %d", least, most)
		return otherwise
	}
	return n
}

// flag reads true or false.
func (f *fields) flag(name string, otherwise bool) bool {
	f.read[name] = true
	value := ""
	if t, is := f.text[name]; is {
		value = t.value
	} else if raw, is := f.raw[name]; is {
		value = string(raw)
	} else {
		return otherwise
	}
	if value != "true" && value != "false" {
		f.fault(name, "want true or false")
	}
	return value == "true"
}

// instant reads a time; zero: none is given.
func (f *fields) instant(name string) (t time.Time) {
	value, ok := f.string(name)
	if !ok {
		return t
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || t.Year() < 1970 {
		f.fault(name, "want a time of RFC 3339, such as 2026-01-02T15:04:05.678Z, from 1970 on")
		return time.Time{}
	}
	return t
}

// pairs reads the headers of a message: an object of texts, or parameters that begin with "header.".
func (f *fields) pairs(name string) map[string]string {
	all := make(map[string]string)
	for key, t := range f.text {
		if of, is := strings.CutPrefix(key, headerPart); is {
			f.read[key] = true
			all[of] = t.value
		}
	}
	if f.text == nil {
		o := f.object(name)
		if o == nil {
			return nil
		}
		for key := range o.raw {
			all[key], _ = o.string(key)
		}
	}
	for key, value := range all {
		if len(key) == 0 || len(key) > 255 || len(value) > 16<<10 {
			f.fault(name, "the header %.40q: want a name of 1 to 255 bytes and at most 16384 of value", key)
		}
	}
	if len(all) > maxHeaders {
		f.fault(name, "it has %d headers: want at most %d", len(all), maxHeaders)
	}
	return all
}

const maxHeaders = 100 // of a message

// bytes reads a payload: text in one field, or base64 in another one. given: it is there.
func (f *fields) bytes(name string) (value []byte, given bool) {
	encoded := name + "_base64"
	plain, isPlain := f.string(name)
	code, isCode := f.string(encoded)
	if isPlain && isCode {
		f.fault(encoded, "it is given beside %s: want one", name)
	}
	if isCode {
		b, err := base64.StdEncoding.DecodeString(code)
		if err != nil {
			f.fault(encoded, "it is not base64 with padding")
		}
		return b, true
	}
	return []byte(plain), isPlain
}

// object reads an object; nil: none is given, or it is none.
func (f *fields) object(name string) *fields {
	f.read[name] = true
	raw, is := f.raw[name]
	if !is {
		return nil
	}
	return f.c.objectOf(raw, f.at+pointer(name)+"/")
}

// array reads an array of least to most values; each has its own pointer.
func (f *fields) array(name string, least, most int) []json.RawMessage {
	f.read[name] = true
	raw, is := f.raw[name]
	if !is {
		if least > 0 {
			f.fault(name, "it is missing")
		}
		return nil
	}
	return f.c.arrayOf(raw, f.at+pointer(name), least, most)
}

// end tells what nobody has read.
func (f *fields) end() {
	var unknown []string
	for name := range f.text {
		if !f.read[name] {
			unknown = append(unknown, name)
		}
	}
	for name := range f.raw {
		if !f.read[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		f.fault(name, "the route has no such %s", map[bool]string{true: "parameter", false: "field"}[f.text != nil])
	}
}

// objectOf reads an object, with a fault for each name that stands twice.
func (c *call) objectOf(raw json.RawMessage, at string) *fields {
	f := &fields{c: c, at: at, raw: make(map[string]json.RawMessage), read: make(map[string]bool)}
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		c.fault("body", strings.TrimSuffix(at, "/"), "want an object")
		return nil
	}
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil {
			break // the body was found to be JSON before
		}
		key, _ := name.(string)
		if _, twice := f.raw[key]; twice {
			f.fault(key, "it stands twice")
		}
		f.raw[key] = value
	}
	return f
}

func (c *call) arrayOf(raw json.RawMessage, at string, least, most int) (all []json.RawMessage) {
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &all) != nil {
		c.fault("body", at, "want an array")
		return nil
	}
	if len(all) < least || len(all) > most {
		c.fault("body", at, fmt.Sprintf("it has %d items: want %d to %d", len(all), least, most))
		return nil
	}
	return all
}

// noParameters says that a request has neither parameters nor Shunt- headers.
func (c *call) noParameters() { c.parameters(false).end() }

// header is the only value of a header, empty where it is not there.
func (c *call) header(name string) string {
	values := c.r.Header[http.CanonicalHeaderKey(name)]
	if len(values) > 1 {
		c.fault("header", name, "it is given more than once")
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
