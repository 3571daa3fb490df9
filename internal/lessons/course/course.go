// SPDX-License-Identifier: Apache-2.0

// Package course has the lessons that come with viplab.
package course

import (
	"embed"
	"io/fs"

	"github.com/viplab/viplab/internal/lessons"
)

//go:embed [0-9]*
var files embed.FS

// All returns the lessons in their order.
func All() ([]*lessons.Lesson, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []*lessons.Lesson
	for _, e := range entries {
		folder, err := fs.Sub(files, e.Name())
		if err != nil {
			return nil, err
		}
		l, err := lessons.Load(folder, e.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}
