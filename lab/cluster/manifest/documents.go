// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/internal/guess"
	"github.com/viplab/viplab/lab/cluster/store"
)

// document is one of the documents of a manifest.
type document struct {
	number int // from 1, as people count; empty documents do not count
	line   int // of the manifest on which it begins, from 1
	text   []byte
}

// splitDocuments cuts a manifest into documents: a stream of JSON values, or YAML with "---" between.
func splitDocuments(data []byte) ([]document, error) {
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' {
		return splitJSON(data)
	}
	return splitYAML(data), nil
}

func splitJSON(data []byte) ([]document, error) {
	var out []document
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		var text json.RawMessage
		err := d.Decode(&text)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			detail := err.Error()
			if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
				detail = fmt.Sprintf("line %d: %v", lineAt(data, bad.Offset), err)
			}
			return out, &DecodeError{Document: len(out) + 1, Line: lineAt(data, d.InputOffset()), Detail: detail}
		}
		start := d.InputOffset() - int64(len(text))
		out = append(out, document{number: len(out) + 1, line: lineAt(data, start), text: text})
	}
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}

func splitYAML(data []byte) []document {
	var out []document
	var text []byte
	start := 1
	flush := func(next int) {
		if hasContent(text) {
			out = append(out, document{number: len(out) + 1, line: start, text: text})
		}
		text, start = nil, next
	}
	for i, line := range bytes.SplitAfter(data, []byte("\n")) {
		number := i + 1
		switch mark, rest := markerOf(line); mark {
		case "---":
			flush(number)
			text = append(text, "   "...) // the rest of the line belongs to the document
			text = append(text, rest...)
		case "...":
			flush(number + 1)
		default:
			text = append(text, line...)
		}
	}
	flush(0)
	return out
}

// markerOf reports whether a line begins or ends a document.
func markerOf(line []byte) (mark string, rest []byte) {
	for _, m := range []string{"---", "..."} {
		if after, ok := bytes.CutPrefix(line, []byte(m)); ok && (len(after) == 0 ||
			strings.ContainsRune(" \t\r\n", rune(after[0]))) {
			return m, after
		}
	}
	return "", nil
}

// hasContent reports whether a text holds more than white space and comments.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// value parses a document. The duplicates are fields given twice; the error, that it does not parse at all.
func (d document) value() (v any, duplicates []string, err error) {
	text := d.text
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		if text, err = yaml.YAMLToJSONStrict(d.text); err != nil {
			duplicates = d.duplicates(err)
			if text, err = yaml.YAMLToJSON(d.text); err != nil {
				return nil, nil, d.inFile(err)
			}
		}
	}
	twice, err := kjson.UnmarshalStrict(text, &v, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range twice {
		duplicates = append(duplicates, e.Error())
	}
	return v, duplicates, nil
}

var (
	yamlLine      = regexp.MustCompile(`line (\d+): `)
	yamlDuplicate = regexp.MustCompile(`line (\d+): key "(.*)" already set in map`)
)

// duplicates parses the duplicate fields out of the YAML parser's error.
func (d document) duplicates(err error) []string {
	var out []string
	for _, m := range yamlDuplicate.FindAllStringSubmatch(err.Error(), -1) {
		out = append(out, fmt.Sprintf("line %d: field %q is given twice", d.lineInFile(m[1]), m[2]))
	}
	return out
}

// inFile turns the line numbers of the parser, which count from the beginning of the document, into those of the file.
func (d document) inFile(err error) error {
	return errors.New(yamlLine.ReplaceAllStringFunc(strings.TrimPrefix(err.Error(), "yaml: "), func(s string) string {
		return fmt.Sprintf("line %d: ", d.lineInFile(yamlLine.FindStringSubmatch(s)[1]))
	}))
}

func (d document) lineInFile(s string) int {
	n, _ := strconv.Atoi(s) // the pattern matched digits
	return d.line + n - 1
}

// unmarshalStrict decodes an object, and returns all unknown fields, or the first value of a wrong type.
func unmarshalStrict(text []byte, into store.Object) (mistakes []string) {
	unknown, err := kjson.UnmarshalStrict(text, into, kjson.DisallowUnknownFields)
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.As(err, &wrong) && wrong.Type.Kind() == reflect.String &&
		(wrong.Value == "bool" || wrong.Value == "number"):
		return []string{fmt.Sprintf("%s: wants a string, got a %s; "+
			"YAML reads 1, true, yes and off as strings in quotes only", wrong.Field, wrong.Value)}
	case errors.As(err, &wrong):
		return []string{fmt.Sprintf("%s: wants %s, got %s", wrong.Field, wrong.Type, wrong.Value)}
	case err != nil:
		return []string{err.Error()}
	}
	for _, u := range unknown {
		mistake := u.Error()
		if at, ok := u.(kjson.FieldError); ok {
			mistake += alternatives(reflect.TypeOf(into), at.FieldPath())
		}
		mistakes = append(mistakes, mistake)
	}
	return mistakes
}

// alternatives returns the fields that exist where an unknown one was found, as the end of a message.
func alternatives(t reflect.Type, path string) string {
	steps := strings.Split(path, ".")
	unknown := steps[len(steps)-1]
	for _, step := range steps[:len(steps)-1] {
		name, _, _ := strings.Cut(step, "[")
		t = fieldsOf(t)[name]
	}
	known := slices.Sorted(maps.Keys(fieldsOf(t)))
	if len(known) == 0 {
		return ""
	}
	meant := ""
	if best := guess.Closest(unknown, known); best != "" {
		meant = fmt.Sprintf(", did you mean %q?", best)
	}
	return fmt.Sprintf("%s (allowed: %s)", meant, strings.Join(known, ", "))
}

// fieldsOf returns the fields of a struct, or of the structs in a list or map, by JSON name; none for other types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t != nil && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	out := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct {
		return out
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}
