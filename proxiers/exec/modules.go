// SPDX-License-Identifier: Apache-2.0

package exec

import (
	osexec "os/exec"
	"strings"
	"sync"
)

// loadLegacyTables loads the modules that iptables-legacy loads with modprobe (xtables_load_ko in libxtables), because
// the kernel does not load them by itself. The programs that are judged may not load modules. It does nothing where
// iptables is another back end, and ignores errors: a program that needs the modules says so.
var loadLegacyTables = sync.OnceFunc(func() {
	for program, module := range map[string]string{"iptables": "ip_tables", "ip6tables": "ip6_tables"} {
		if version, err := osexec.Command(program, "--version").Output(); err == nil &&
			strings.Contains(string(version), "legacy") {
			_ = osexec.Command("modprobe", "--quiet", module).Run()
		}
	}
})
