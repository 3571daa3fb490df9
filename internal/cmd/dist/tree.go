// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file of a release.
type file struct {
	path    string // below /usr
	mode    fs.FileMode
	content []byte
	from    string // the file that has the content, if content is nil
}

func (f file) read() ([]byte, error) {
	if f.content != nil {
		return f.content, nil
	}
	return os.ReadFile(f.from)
}

// tree is what a release installs below /usr, or below a folder of the user's choice.
type tree []file

// with returns the tree with further files, in the order of their paths.
func (t tree) with(more ...file) tree {
	all := slices.Concat(t, more)
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return all
}

// completions are the shells that viplab writes completions for, and where these look for them.
var completions = map[string]string{
	"bash": "share/bash-completion/completions/viplab",
	"zsh":  "share/zsh/vendor-completions/_viplab",
	"fish": "share/fish/vendor_completions.d/viplab.fish",
}

// documents returns the manual pages and completions that an executable writes, and the change log.
func documents(ctx context.Context, binary string, date time.Time) (tree, error) {
	var t tree
	for shell, path := range completions {
		text, err := exec.CommandContext(ctx, binary, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("%s completion %s: %w", binary, shell, err)
		}
		t = append(t, file{path, 0o644, text, ""})
	}
	dir, err := os.MkdirTemp("", "viplab-man-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, binary, "man", dir)
	cmd.Env = append(os.Environ(), fmt.Sprint("SOURCE_DATE_EPOCH=", date.Unix()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s man: %w: %s", binary, err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("%s man wrote no pages: %w", binary, err)
	}
	for _, page := range append(pages, "CHANGELOG.md") {
		goal := path.Join("share/man/man1", filepath.Base(page)+".gz")
		if page == "CHANGELOG.md" {
			goal = "share/doc/viplab/changelog.gz"
		}
		text, err := os.ReadFile(page)
		if err == nil {
			text, err = gzipped(text)
		}
		if err != nil {
			return nil, err
		}
		t = append(t, file{goal, 0o644, text, ""})
	}
	return t.with(), nil
}

func gzipped(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// archive writes a compressed tar file with all files below one folder.
func (t tree) archive(goal, top string, date time.Time) error {
	packed, err := t.tar(top, date)
	if err != nil {
		return fmt.Errorf("%s: %w", goal, err)
	}
	small, err := gzipped(packed)
	if err != nil {
		return err
	}
	return os.WriteFile(goal, small, 0o644)
}

// unpack writes the files below a folder, with the date.
func (t tree) unpack(root string, date time.Time) error {
	for _, f := range t {
		goal := filepath.Join(root, f.path)
		content, err := f.read()
		if err == nil {
			err = os.MkdirAll(filepath.Dir(goal), 0o755)
		}
		if err == nil {
			err = os.WriteFile(goal, content, f.mode)
		}
		if err == nil {
			err = os.Chtimes(goal, date, date)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
