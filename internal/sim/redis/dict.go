package redis

import (
	"iter"
	"sort"
)

// dict is a map that keeps the order in which keys have come. The zero value is empty.
type dict[V any] struct {
	at    map[string]int // where a key is in items
	items []item[V]
	last  int // number of the latest item
}

type item[V any] struct {
	key    string
	value  V
	number int // grows from item to item: a cursor that outlives moves
	gone   bool
}

func (d *dict[V]) len() int { return len(d.at) }

func (d *dict[V]) get(key string) (v V, is bool) {
	i, is := d.at[key]
	if !is {
		return v, false
	}
	return d.items[i].value, true
}

func (d *dict[V]) has(key string) bool {
	_, is := d.at[key]
	return is
}

// set tells whether the key is new.
func (d *dict[V]) set(key string, v V) bool {
	if i, is := d.at[key]; is {
		d.items[i].value = v
		return false
	}
	if d.at == nil {
		d.at = make(map[string]int)
	}
	d.last++
	d.at[key] = len(d.items)
	d.items = append(d.items, item[V]{key: key, value: v, number: d.last})
	return true
}

// delete tells whether the key was there.
func (d *dict[V]) delete(key string) bool {
	i, is := d.at[key]
	if !is {
		return false
	}
	delete(d.at, key)
	d.items[i] = item[V]{number: d.items[i].number, gone: true}
	if len(d.items) > 16 && len(d.at) < len(d.items)/2 {
		d.shrink()
	}
	return true
}

// shrink drops the items that are gone.
func (d *dict[V]) shrink() {
	kept := make([]item[V], 0, len(d.at))
	for _, it := range d.items {
		if !it.gone {
			d.at[it.key] = len(kept)
			kept = append(kept, it)
		}
	}
	d.items = kept
}

// all gives what is there when it is called; keys may be set and deleted meanwhile.
func (d *dict[V]) all() iter.Seq2[string, V] {
	items := d.items
	return func(yield func(string, V) bool) {
		for i := range items {
			if it := items[i]; !it.gone && !yield(it.key, it.value) {
				return
			}
		}
	}
}

// scan gives up to n items from a cursor on, and the next cursor, 0 at the end.
func (d *dict[V]) scan(cursor, n int) (found []item[V], next int) {
	from := sort.Search(len(d.items), func(i int) bool { return d.items[i].number >= cursor })
	for _, it := range d.items[from:] {
		if it.gone {
			continue
		}
		if len(found) == n {
			return found, it.number
		}
		found = append(found, it)
	}
	return found, 0
}

func (d *dict[V]) clone(value func(V) V) dict[V] {
	var c dict[V]
	for key, v := range d.all() {
		c.set(key, value(v))
	}
	return c
}

func same[V any](v V) V { return v }
