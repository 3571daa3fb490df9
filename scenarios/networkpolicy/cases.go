// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy holds what NetworkPolicies promise: the static cases, each a table of what is blocked.
package networkpolicy

import _ "embed" // for Cases

// Cases is cases.json: the static cases of NetworkPolicy, each with its policies and the table of what they block.
// Package internal/suite/netpol reads it, tells of its format, and runs it.
//
//go:embed cases.json
var Cases []byte
