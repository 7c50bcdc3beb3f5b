package dashboard

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
)

// Every text is there in each language, with the same arguments; each that a page asks for is there.
func TestTexts(t *testing.T) {
	t.Parallel()
	holes := regexp.MustCompile(`%(\[\d\])?[sd]`)
	for key, both := range texts {
		for i, text := range both {
			if text == "" {
				t.Errorf("%s has no text in %s", key, languages[i])
			}
		}
		if a, b := len(holes.FindAllString(both[0], -1)), len(holes.FindAllString(both[1], -1)); a != b &&
			!strings.Contains(both[1], "%[") {
			t.Errorf("%s has %d and %d arguments", key, a, b)
		}
	}
	used := regexp.MustCompile(`\bT \(?(?:print )?"([^"]+)"|\.T\("([^"]+)"|Key: "([^"]+)"`)
	want := func(name, body string) {
		for _, m := range used.FindAllStringSubmatch(body, -1) {
			key := m[1] + m[2] + m[3]
			if _, is := texts[key]; !is && !strings.HasSuffix(key, ".") {
				t.Errorf("%s asks for %q", name, key)
			}
		}
	}
	list, _ := fs.Glob(files, "templates/*.html")
	for _, name := range list {
		body, _ := files.ReadFile(name)
		want(name, string(body))
	}
	var keys []string
	for _, o := range orders {
		keys = append(keys, "col."+o.key)
	}
	for _, f := range append(view{}.Tiles(), view{}.ChannelTiles()...) {
		keys = append(keys, "col."+f)
	}
	for _, s := range shunt.States {
		keys = append(keys, "state."+string(s), "when."+string(s))
	}
	for verb, single := range singles {
		if keys = append(keys, "verb."+verb, "did."+verb); single.danger {
			keys = append(keys, "confirm."+verb)
		}
	}
	for verb := range bulkStates {
		keys = append(keys, "verb."+verb, "did."+verb, "confirm."+verb)
	}
	for verb := range recurrences {
		keys = append(keys, "verb."+verb, "did."+verb)
	}
	for _, theme := range themes {
		keys = append(keys, "theme."+theme)
	}
	for _, g := range infoShown {
		keys = append(keys, g.key)
	}
	for _, s := range []shunt.Severity{shunt.Critical, shunt.Warning, shunt.Notice} {
		keys = append(keys, "severity."+string(s))
	}
	for _, key := range keys {
		if _, is := texts[key]; !is {
			t.Errorf("there is no text %q", key)
		}
	}
}

// The language is that of the query, then the cookie, then the browser.
func TestLanguage(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"": "en", "zh": "zh", "zh-CN,zh;q=0.9,en;q=0.8": "zh",
		"de,zh;q=0.5":    "zh",
		"en-US,zh;q=0.1": "en", "fr": "en", ";;,,": "en", "ZH-TW": "zh"} {
		if got := languages[accepted(header)]; got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
	d := newDesk(t)
	b := d.as("vera")
	b.get(200, "", `lang="en"`, "Overview")
	b.get(200, "?lang=zh", `lang="zh-Hans"`, "概览")
	b.get(200, "settings", `lang="zh-Hans"`)
	b.send(303, "settings", map[string][]string{"token": {b.token()}, "lang": {"en"}, "theme": {"dark"}})
	b.get(200, "settings", `lang="en"`, `data-theme="dark"`)
	b.send(303, "settings", map[string][]string{"token": {b.token()}, "lang": {"xx"}, "theme": {"\"><b>"}})
	b.get(200, "settings", `lang="en"`, `data-theme="dark"`)
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0",
		40 * time.Microsecond: "0.04ms", 850 * time.Millisecond: "850ms",
		1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s", 192 * time.Second: "3m 12s", 2 * time.Hour: "2h",
		75 * time.Hour: "3d 3h", -time.Minute: "−1m"} {
		if got := duration(d, 0); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -999: "-999"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for text, want := range map[string]string{"abc": "abc", "a\n b": "a b", "grüße": "grü…", "\xff": "\uFFFD"} {
		if got := cut(4, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := []string{rate(0, 1), rate(1, time.Hour), rate(5, time.Second), rate(99999, time.Second), byteSize(1536),
		percent(1, 3), percent(0, 0), percent(1, 1000)}; strings.Join(got, " ") !=
		"0 <0.1 5.0 99,999 1.5 KB 33% – <1%" {
		t.Error(got)
	}
}

// The table comes in the order that was asked for, filtered, and in pages.
func TestArrange(t *testing.T) {
	t.Parallel()
	var all []shunt.Overview
	for i := range 450 {
		name := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		all = append(all, shunt.Overview{Channel: name, Prepare: i, Dead: 450 - i})
	}
	for query, want := range map[string]string{"": "449", "sort=waiting&up=1": "0", "sort=dead": "0",
		"sort=channel":      "0",
		"sort=channel&up=1": "441", "from=200": "249", "from=99999": "", "q=zx": "441", "sort=junk&from=-5": "449"} {
		q := requestFor(query)
		p := q.arrange(all)
		got := ""
		if len(p.Rows) > 0 {
			got = p.Rows[0].Fields["waiting"]
		}
		if got != want || len(p.Rows) > rowsAPage {
			t.Errorf("%q: %s of %d rows, want %s", query, got, len(p.Rows), want)
		}
	}
	if p := requestFor("q=x").arrange(all); p.Next != "from=200&q=x" {
		t.Error(p.Next)
	}
}
