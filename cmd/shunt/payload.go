package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// pretty shows a payload by what it is: JSON indented, text as it is, all else as a hex dump. The kind is said, too.
func pretty(payload []byte) (kind, text string) {
	switch {
	case len(payload) == 0:
		return "empty", ""
	case looksJSON(payload):
		var b bytes.Buffer
		if json.Indent(&b, payload, "", "  ") == nil {
			return "json", lines(b.String())
		}
	case isText(payload):
		return "text", lines(string(payload))
	}
	return "binary", strings.TrimRight(hex.Dump(payload), "\n")
}

// brief is a payload for one cell.
func brief(payload []byte, to int) string {
	if !utf8.Valid(bytes.TrimRightFunc(payload, func(r rune) bool { return r == utf8.RuneError })) {
		return "0x" + hex.EncodeToString(payload[:min(len(payload), to/2)])
	}
	return cut(strings.ToValidUTF8(string(payload), ""), to)
}

func looksJSON(payload []byte) bool {
	return utf8.Valid(payload) && json.Valid(payload)
}

// isText says whether bytes are text: UTF-8 without control characters but blanks.
func isText(payload []byte) bool {
	if !utf8.Valid(payload) {
		return false
	}
	for _, r := range string(payload) {
		if control(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

// lines is a text of several lines for a terminal.
func lines(s string) string {
	all := strings.Split(s, "\n")
	for i, line := range all {
		cells := strings.Split(strings.TrimRight(line, "\r"), "\t")
		for j := range cells {
			cells[j] = printable(cells[j])
		}
		all[i] = strings.Join(cells, "\t")
	}
	return strings.TrimRight(strings.Join(all, "\n"), "\n")
}
