package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// view is what a template gets.
type view struct {
	*request
	Page    string
	Title   string
	Version string
	Data    any
}

// Site is Options.Title.
func (v view) Site() string { return v.o.Title }

// Above is Options.Above.
func (v view) Above() string { return v.o.Above }

// Operator says whether the user may act.
func (q *request) Operator() bool { return q.User.Role == Operator }

// Did is what an action before this page has done.
func (q *request) Did() string {
	key := "did." + q.form.Get("did")
	if _, is := texts[key]; !is || q.r.Method == http.MethodPost {
		return ""
	}
	return q.T(key, q.Num(atoi(q.form.Get("n"))))
}

func (q *request) show(page, title string, data any) error {
	return q.write(http.StatusOK, page, title, data)
}

func (q *request) write(status int, page, title string, data any) error {
	var b bytes.Buffer
	if err := pages()[page].ExecuteTemplate(&b, "layout", view{q, page, title, version, data}); err != nil {
		return fmt.Errorf("dashboard: show %s: %w", page, err)
	}
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(status)
	_, _ = io.Copy(q.w, &b) // an error is the browser's, which has gone
	return nil
}

// fail shows an error as a page.
func (q *request) fail(err error) {
	status := http.StatusBadGateway
	var own *httpError
	switch {
	case errors.As(err, &own):
		status = own.status
	case errors.Is(err, shunt.ErrNotFound), errors.Is(err, recur.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, context.Canceled) && q.r.Context().Err() != nil:
		return // the browser has gone
	case errors.Is(err, shunt.ErrRunning), errors.Is(err, shunt.ErrWaiting), errors.Is(err, shunt.ErrDuplicate):
		status = http.StatusConflict
	default:
		q.o.Log.Error("dashboard: a page failed", "path", q.r.URL.Path, "error", err)
	}
	if err := q.write(status, "error", q.T("error"), err.Error()); err != nil {
		http.Error(q.w, "dashboard: the page cannot be shown", http.StatusInternalServerError)
	}
}

// channelOf is the channel that a request names.
func (q *request) channelOf() (string, error) {
	c := q.form.Get("c")
	if c == "" {
		return "", refuse(http.StatusBadRequest, "dashboard: the channel is missing: ?c=NAME")
	}
	return c, nil
}

// navItem is a link of the head of each page.
type navItem struct{ Path, Page, Key string }

// Nav are the pages that are about everything.
func (v view) Nav() []navItem {
	return []navItem{{"", "overview", "overview"}, {"dead", "dead", "dead"}, {"recurring", "recurring", "recurring"},
		{"receivers", "receivers", "receivers"}, {"redis", "redis", "redis"}, {"audit", "audit", "audit"},
		{"settings", "settings", "settings"}}
}

// Live is the stream of a live page, and empty of others.
func (v view) Live() string {
	if v.Page != "overview" && v.Page != "channel" && (v.Page != "dead" || v.form.Get("c") == "") {
		return ""
	}
	query := v.r.URL.Query()
	query.Set("lang", languages[v.Lang])
	return "live?" + query.Encode()
}
