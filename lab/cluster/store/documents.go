// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
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
