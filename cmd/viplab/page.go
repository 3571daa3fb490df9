// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/viplab/viplab/internal/suite/page"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// pageOf returns the contents of a page of the catalogue: see page.Of.
func pageOf(title string, all []spec.Scenario, keep func(id string) bool) (report.Page, error) {
	return page.Of(title, all, keep)
}
