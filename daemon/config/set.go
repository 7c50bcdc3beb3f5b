package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var errUnknown = errors.New("there is no such key")

// setDefaults sets the fields of a struct to the defaults that their tags state.
func setDefaults(to any) {
	v := reflect.ValueOf(to).Elem()
	for i := range v.NumField() {
		f, tag := v.Field(i), v.Type().Field(i).Tag
		switch {
		case f.Kind() == reflect.Struct:
			setDefaults(f.Addr().Interface())
		case tag.Get("default") != "":
			if err := setValue(f, tag.Get("default")); err != nil {
				panic(err) // a tag of ours
			}
		}
	}
}

// field finds what has a key among a struct's fields, and in those that it embeds.
func field(v reflect.Value, key string) (f reflect.Value, secret, ok bool) {
	for i := range v.NumField() {
		t := v.Type().Field(i)
		if t.Anonymous {
			if f, secret, ok := field(v.Field(i), key); ok {
				return f, secret, ok
			}
		} else if t.Tag.Get("key") == key {
			return v.Field(i), t.Tag.Get("secret") != "", true
		}
	}
	return f, false, false
}

// set sets what a path of keys leads to.
func set(v reflect.Value, path []string, value any) error { return setSecret(v, path, value, false) }

func setSecret(v reflect.Value, path []string, value any, secret bool) error {
	if len(path) == 0 {
		if v.Kind() == reflect.Struct || v.Kind() == reflect.Map {
			return errors.New("it has keys of its own")
		}
		err := setValue(v, value)
		if err != nil && secret {
			return errors.New("it is no text")
		}
		return err
	}
	switch v.Kind() {
	case reflect.Struct:
		f, hidden, ok := field(v, path[0])
		if !ok {
			return errUnknown
		}
		return setSecret(f, path[1:], value, hidden)
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		name, item := reflect.ValueOf(path[0]), reflect.New(v.Type().Elem()).Elem()
		if had := v.MapIndex(name); had.IsValid() {
			item.Set(had)
		} else if item.Kind() == reflect.Struct {
			setDefaults(item.Addr().Interface())
		}
		if err := setSecret(item, path[1:], value, secret); err != nil {
			return err
		}
		v.SetMapIndex(name, item)
		return nil
	}
	return errUnknown
}

// setValue sets a field from TOML's value, or from the text of a flag or a variable.
func setValue(v reflect.Value, value any) error {
	text, isText := value.(string)
	switch to := v.Addr().Interface().(type) {
	case *string:
		if !isText {
			return fmt.Errorf("%v: want a text, in quotes", value)
		}
		*to = text
	case *bool:
		b, ok := value.(bool)
		if isText {
			var err error
			b, err = strconv.ParseBool(text)
			ok = err == nil
		}
		if !ok {
			return fmt.Errorf("%v: want true or false", value)
		}
		*to = b
	case *int:
		n, ok := value.(int64)
		if isText {
			var err error
			n, err = strconv.ParseInt(text, 10, 64)
			ok = err == nil
		}
		if !ok {
			return fmt.Errorf("%v: want a whole number", value)
		}
		*to = int(n)
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%v: want a time with its unit, such as \"30s\" or \"10m\"", value)
		}
		*to = d
	case *[]string:
		return setList(to, value)
	default:
		return fmt.Errorf("config: a field of %s", v.Type())
	}
	return nil
}

func setList(to *[]string, value any) error {
	*to = nil
	switch list := value.(type) {
	case string:
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*to = append(*to, item)
			}
		}
		return nil
	case []any:
		for _, item := range list {
			text, ok := item.(string)
			if !ok {
				return fmt.Errorf("%v: want texts, in quotes", item)
			}
			*to = append(*to, text)
		}
		return nil
	}
	return fmt.Errorf("%v: want a list such as [\"a\", \"b\"]", value)
}

// Key describes one key.
type Key struct {
	Name    string // with NAME in place of a pool's, or a user's
	Default string
	Help    string
}

// Keys are all of them, in the order of the struct.
func Keys() []Key {
	ks := keysOf(reflect.TypeFor[Config](), "")
	c := Default()
	for i := range ks {
		switch ks[i].Name { // one struct with two defaults
		case "api.listen":
			ks[i].Default = c.API.Listen
		case "admin.listen":
			ks[i].Default = c.Admin.Listen
		}
	}
	return ks
}

func keysOf(t reflect.Type, before string) (ks []Key) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := before + f.Tag.Get("key")
		switch {
		case f.Anonymous:
			ks = append(ks, keysOf(f.Type, before)...)
		case f.Type.Kind() == reflect.Struct:
			ks = append(ks, keysOf(f.Type, name+".")...)
		case f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Struct:
			ks = append(ks, keysOf(f.Type.Elem(), name+".NAME.")...)
		case f.Type.Kind() == reflect.Map:
			ks = append(ks, Key{name + ".NAME", "", f.Tag.Get("help")})
		default:
			ks = append(ks, Key{name, f.Tag.Get("default"), f.Tag.Get("help")})
		}
	}
	return ks
}
