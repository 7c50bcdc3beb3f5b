package redis

import (
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// vocabulary has what a word of a shape may stand for. A shape is a line of words with blanks between:
//
//	word    something of that name, or itself where no such name is there; '' is empty
//	a|b     one or the other
//	word?   or nothing
//	( … )*  what is between, up to three times
type vocabulary map[string][]string

// draw makes arguments of a shape.
func (v vocabulary) draw(t *rapid.T, shape string) []string {
	var all []string
	tokens := strings.Fields(shape)
	for i := 0; i < len(tokens); i++ {
		token := tokens[i]
		if token == "(" {
			end := i
			for tokens[end] != ")*" {
				end++
			}
			for range rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "times") {
				all = append(all, v.draw(t, strings.Join(tokens[i+1:end], " "))...)
			}
			i = end
			continue
		}
		word, may := strings.CutSuffix(token, "?")
		if may && rapid.Bool().Draw(t, word) {
			continue
		}
		if choices := strings.Split(word, "|"); len(choices) > 1 {
			word = rapid.SampledFrom(choices).Draw(t, "choice")
		}
		if of, is := v[word]; is {
			word = rapid.SampledFrom(of).Draw(t, word)
		}
		all = append(all, strings.Trim(word, "'"))
	}
	return all
}

// many is how often something is done. An IntRange would mostly be small.
func many(t *rapid.T, most int) int {
	return rapid.SampledFrom([]int{1, 2, 4, most / 4, most / 2, most, most}).Draw(t, "times")
}

// oneOf draws from words, each with its weight.
func oneOf(t *rapid.T, weights map[string]int) string {
	var all []string
	for _, word := range slices.Sorted(maps.Keys(weights)) {
		for range weights[word] {
			all = append(all, word)
		}
	}
	return rapid.SampledFrom(all).Draw(t, "what")
}
