package dashboard

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// hostile texts, each with what a page must not have of it.
var hostile = []struct{ text, never string }{
	{`<script>alert(1)</script>`, `<script>alert`},
	{`"><img/src=x/onerror=alert(1)>`, `<img`},
	{`'><svg/onload=alert(1)>`, `<svg/onload`},
	{`"onmouseover="alert(1)`, `"onmouseover`},
	{`javascript:alert(1)`, `href="javascript:`},
	{`</title><script>alert(2)</script>`, `</title><script`},
	{`</pre></table><form/action=//evil.example>`, `<form/action`},
	{`<template><iframe>`, `<iframe`},
	{"x`${alert(1)}`", "\x00"},
	{`../../settings?token=1&c=2#x`, `href="../..`},
	{`//evil.example/`, `href="//evil`},
	{"&lt;q&gt;&#x3c;i&#x3e;", "<q>"},
	{"<!--", "<!--"},
	{"]]>", "]]>"},
}

// What a message, a header, a failure, an id, a type or a channel is called reaches no page as markup.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx := context.Background()
	tt := &recur.Timetable{Queue: d.q}
	b := d.as("olga")
	for _, h := range hostile {
		channel := strings.NewReplacer("{", "(", "}", ")", " ", "_").Replace(h.text)
		opts := []shunt.Option{shunt.ID(h.text), shunt.Header(h.text, h.text), shunt.Type(h.text),
			shunt.Header("Content-Type", h.text)}
		d.enqueue(channel, h.text, opts...)
		d.kill(channel+"!", 1, h.text, opts...)
		if err := tt.Add(ctx, h.text, recur.Every(24*time.Hour), shunt.Raw(channel, []byte(h.text))); err != nil {
			t.Fatal(h.text, err)
		}
		if err := d.q.Audit(ctx, shunt.AuditEntry{By: h.text, Verb: h.text, Channel: channel, Detail: h.text,
			Error: h.text}); err != nil {
			t.Fatal(err)
		}
		c, dead, text := url.QueryEscape(channel), url.QueryEscape(channel+"!"), url.QueryEscape(h.text)
		ready := d.entry(channel, shunt.StatePrepare).Ref().String()
		gone := d.entry(channel+"!", shunt.StateDead).Ref().String()
		paths := map[string]int{
			"": 200, "?q=" + text: 200, "?sort=" + text + "&from=" + text: 200, "?did=" + text + "&n=" + text: 200,
			"channel?c=" + c: 200, "channel?c=" + c + "&range=" + text: 200, "messages?c=" + c: 200,
			"messages?s=dead&c=" + dead: 200, "messages?c=" + c + "&find=no" + text: 200,
			"messages?c=" + c + "&failure=" + text + "&header=" + text + "&type=" + text + "&idprefix=" + text: 200,
			"messages?c=" + c + "&from=" + text: 502, "message?ref=" + text: 400, "dead": 200, "dead?c=" + dead: 200,
			"message?ref=" + url.QueryEscape(ready): 200, "message?ref=" + url.QueryEscape(gone): 200,
			"dead?c=" + dead + "&like=" + text: 200, "recurring?c=" + c: 200, "receivers?c=" + c: 200, "audit": 200,
			"audit?before=" + text: 502, "settings?lang=" + text: 200,
		}
		for path, status := range paths {
			if body := b.get(status, path); strings.Contains(body, h.never) {
				t.Errorf("%q on %s: %s", h.text, path, near(body, h.never))
			}
		}
		for _, pairs := range [][]string{{"verb", "delete", "ref", gone, "back", h.text},
			{"verb", "delete-all", "c", channel + "!", "failure", h.text, "back", h.text, h.text, h.text}} {
			if _, body := b.post(200, pairs...); strings.Contains(body, h.never) {
				t.Errorf("%q asked by %v: %s", h.text, pairs, near(body, h.never))
			}
		}
		if _, body := b.post(400, "verb", h.text, "c", channel); strings.Contains(body, h.never) {
			t.Errorf("%q: %s", h.text, near(body, h.never))
		}
		// After an action the browser stays here.
		for _, back := range []string{h.text, "//evil.example", "https://evil.example/?", "live?x=1", "\\\\evil"} {
			location, _ := b.post(303, "verb", "run", "c", channel, "name", h.text, "back", back)
			if !strings.HasPrefix(location, "./?did=run") {
				t.Errorf("back to %q by %q", location, back)
			}
		}
	}
}

// Payloads are shown as what they are, whatever they claim.
func TestReadable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ payload, kind, shown, text string }{
		{`{"b":1,"a":[true]}`, "", "json", "{\n  \"b\": 1,\n  \"a\": [\n    true\n  ]\n}"},
		{`{"b":1}`, "text/plain", "json", "{\n  \"b\": 1\n}"},
		{"a=1&b=%3Cx%3E", "application/x-www-form-urlencoded", "form", "a = 1\nb = <x>\n"},
		{"a=%zz", "application/x-www-form-urlencoded", "text", "a=%zz"},
		{"grüße\n", "", "text", "grüße\n"},
		{"\x00\x01", "application/json", "hex", "00000000  00 01"},
		{"\xff\xfe", "", "hex", "00000000  ff fe"},
		{"", "", "", ""},
	} {
		got := readable([]byte(c.payload), c.kind)
		if got.Kind != c.shown || !strings.HasPrefix(got.Text, c.text) || got.Size != len(c.payload) {
			t.Errorf("%q: %+v", c.payload, got)
		}
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	if got := readable([]byte(deep), ""); len(got.Text) > 5*bodyShown {
		t.Errorf("%s of %d bytes", got.Kind, len(got.Text))
	}
	long := strings.Repeat("ü", bodyShown)
	if got := readable([]byte(long), ""); !got.Cut || len(got.Text) > bodyShown+3 || got.Kind != "text" {
		t.Error(got.Kind, got.Cut, len(got.Text))
	}
}

// What Mask hides is on no page, and no search finds it.
func TestMask(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(o *Options) {
		o.Mask = func(e shunt.Entry) shunt.Entry {
			e.Payload, e.Headers, e.Outcome.Result = nil, nil, nil
			e.Failure = strings.ReplaceAll(e.Failure, "swordfish", "***")
			return e
		}
	})
	ref := d.enqueue("mail", "swordfish", shunt.Header("password", "swordfish"), shunt.ID("a"))
	d.kill("gone", 2, "login with swordfish", shunt.Header("password", "swordfish"))
	dead := d.entry("gone", shunt.StateDead).Ref().String()
	tt := &recur.Timetable{Queue: d.q}
	daily := recur.Every(24 * time.Hour)
	if err := tt.Add(context.Background(), "n", daily, shunt.Raw("mail", []byte("swordfish"))); err != nil {
		t.Fatal(err)
	}
	b := d.as("olga")
	for _, path := range []string{"messages?c=mail", "message?ref=" + url.QueryEscape(ref.String()), "dead?c=gone",
		"messages?c=gone&s=dead", "message?ref=" + url.QueryEscape(dead), "recurring",
		"payload?ref=" + url.QueryEscape(ref.String()), "payload?ref=" + url.QueryEscape(dead), "receivers"} {
		if body := b.get(200, path); strings.Contains(body, "swordfish") {
			t.Errorf("%s: %s", path, near(body, "swordfish"))
		}
	}
	for path, found := range map[string]bool{"messages?c=mail&header=password": false, "messages?c=mail": true,
		"messages?c=gone&s=dead&failure=swordfish": false, "messages?c=gone&s=dead&failure=login": true} {
		if none := strings.Contains(b.get(200, path), "There is none here"); none == found {
			t.Errorf("%s: found %v", path, !none)
		}
	}
}
