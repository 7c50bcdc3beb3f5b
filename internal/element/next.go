package element

import (
	"fmt"
	"unicode/utf8"
)

// Next is the element as it is written back after a handling: with one attempt more, no recoveries, and its failure. It
// was taken, so it does not expire any more.
func (e Element) Next(failure error) Element {
	e = e.taken()
	e.Attempts++
	text := ""
	if failure != nil {
		text = FailureText(failure)
	}
	e.SetFailure(text)
	return e
}

// Unhandled is the element as it is written back after a handling that counts as none: without recoveries. It was
// taken, so it does not expire any more.
func (e Element) Unhandled() Element {
	e = e.taken()
	e.flags |= flagHandled
	return e
}

func (e Element) taken() Element {
	if e.Bare {
		e.Bare, e.Serial = false, NewSerial()
	}
	if x := e.Extra; x != nil && x.Expires != 0 {
		taken := *x
		taken.Expires, taken.ToDead = 0, false
		e.Extra = &taken
	}
	e.Recoveries = 0
	return e
}

// FailureText cuts an error's text to what may travel, at a whole character.
func FailureText(err error) string {
	return cut(fmt.Sprint(err), maxFailure) // which survives an Error method that panics
}

// cut is at most n bytes of a text, up to a whole character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > 0 && i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n] // no text
}

// EncodeWithin is Encode with as much of the failure's text as n bytes leave room for. An element that was accepted
// must not grow beyond what Redis takes. Only the header that a bare payload gets may exceed n.
func (e *Element) EncodeWithin(n int) []byte {
	if over := e.Size() - n; over > 0 {
		text := e.Failure()
		e.SetFailure(cut(text, max(0, len(text)-over)))
	}
	return e.Encode()
}
