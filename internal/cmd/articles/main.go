// SPDX-License-Identifier: Apache-2.0

// Command articles writes the pages that set the four articles beside the lessons into a folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/viplab/viplab/internal/lessons/articles"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: articles FOLDER")
		os.Exit(2)
	}
	for _, lang := range articles.Languages {
		text, err := articles.Page(lang)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], articles.File(lang)), []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "articles:", err)
			os.Exit(1)
		}
	}
}
