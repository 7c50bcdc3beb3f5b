package link

import (
	"errors"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Class says what an error tells of a command's outcome.
type Class int

const (
	Done        Class = iota // executed, no error
	NotExecuted              // surely not: it may be sent again
	Unknown                  // sent, and no reply came: it may have been executed, or may yet be
	Fatal                    // refused, and waiting does not help: wrong type, permission, password
	Failed                   // executed with an error
)

// Error is a command's failure on the way to Redis; the class is NotExecuted or Unknown.
type Error struct {
	Class Class
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// refusals are the first words of replies that say that nothing was executed; true where the connection should be dropped
// too, because the server behind it has changed its role or is not ready.
var refusals = map[string]bool{
	"MOVED": false, "ASK": false, "TRYAGAIN": false, "CLUSTERDOWN": false, "OOM": false, "NOSCRIPT": false, "BUSY": false,
	"NOREPLICAS": false, "MISCONF": false, "LOADING": true, "READONLY": true, "MASTERDOWN": true, "UNBLOCKED": true,
}

// fatals likewise, where only a person can help.
var fatals = map[string]bool{"WRONGTYPE": false, "NOPERM": false, "NOAUTH": true, "WRONGPASS": true}

// Code is the first word of a server's error reply, also where a server older than 7 wraps a script's error in its own;
// empty for any other error.
func Code(err error) string {
	if err == nil { // which is asked for every message, and must not cost the memory of e
		return ""
	}
	var e redis.Error
	if !errors.As(err, &e) {
		return ""
	}
	text := string(e)
	code, _, _ := strings.Cut(text, " ")
	if code != "ERR" {
		return code
	}
	for _, set := range []map[string]bool{refusals, fatals} {
		for c := range set {
			if strings.Contains(text, "-"+c+" ") || strings.Contains(text, ": "+c+" ") {
				return c
			}
		}
	}
	return code
}

// Classify judges the error of one command.
func Classify(err error) Class {
	if err == nil {
		return Done
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	code := Code(err)
	if _, ok := refusals[code]; ok {
		return NotExecuted
	}
	if _, ok := fatals[code]; ok {
		return Fatal
	}
	if code == "" {
		return Unknown
	}
	return Failed
}

// drops says whether a connection that gave this reply is of no further use.
func drops(err error) bool {
	code := Code(err)
	return refusals[code] || fatals[code]
}
