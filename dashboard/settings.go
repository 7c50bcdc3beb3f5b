package dashboard

import (
	"net/http"
	"slices"
	"strings"
)

const (
	themeCookie = "shunt_theme"
	langCookie  = "shunt_lang"
	// settingsFor is how long a browser keeps them: a year, in seconds.
	settingsFor = 365 * 24 * 3600
)

var themes = []string{"auto", "light", "dark"}

// preferences takes the theme and the language from the query, the cookies and the browser.
func (q *request) preferences() {
	if c, err := q.r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		q.Theme = c.Value
	}
	q.Lang = accepted(q.r.Header.Get("Accept-Language"))
	if c, err := q.r.Cookie(langCookie); err == nil && slices.Contains(languages[:], c.Value) {
		q.Lang = slices.Index(languages[:], c.Value)
	}
	if lang := slices.Index(languages[:], q.r.URL.Query().Get("lang")); lang >= 0 {
		q.Lang = lang
		setCookie(q.w, q.r, langCookie, languages[lang], settingsFor)
	}
}

// accepted is the first language of the browser's list that there is; browsers send the best one first.
func accepted(header string) int {
	for part := range strings.SplitSeq(header, ",") {
		tag, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		tag, _, _ = strings.Cut(tag, "-")
		if lang := slices.Index(languages[:], strings.ToLower(tag)); lang >= 0 {
			return lang
		}
	}
	return 0
}

type settingsPage struct {
	Themes    []string
	Languages []string
	Names     [2]string
	Masks     bool
	Streams   int
}

func (q *request) settings() error {
	q.hub.mu.Lock()
	streams := len(q.hub.ears)
	q.hub.mu.Unlock()
	return q.show("settings", q.T("settings"), settingsPage{themes, languages[:], languageNames, q.Masks(), streams})
}

// setSettings keeps the theme and the language in the browser; viewers may, too.
func (q *request) setSettings() error {
	if theme := q.form.Get("theme"); slices.Contains(themes, theme) {
		setCookie(q.w, q.r, themeCookie, theme, settingsFor)
	}
	if lang := q.form.Get("lang"); slices.Contains(languages[:], lang) {
		setCookie(q.w, q.r, langCookie, lang, settingsFor)
	}
	q.w.Header().Set("Location", "./settings")
	q.w.WriteHeader(http.StatusSeeOther)
	return nil
}
