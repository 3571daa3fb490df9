// SPDX-License-Identifier: Apache-2.0

package articles

// word are what the page says, by language.
var word = map[string]Words{
	"en": {
		"lab": "In the lab", "drawn": "Drawn from the rules that packets of the lab met:",
		"article": "article", "viplab": "lesson",
	},
	"ko": {
		"lab": "랩에서는", "drawn": "랩의 패킷이 실제로 만난 규칙으로 그린 그림:",
		"article": "글", "viplab": "레슨",
	},
}

// heads are the first section of the page, with the numbers of exhibits, of lines that are the same, and of others.
var heads = Words{"en": headEN, "ko": headKO}

const headEN = `# The four articles beside the lessons

The lessons follow [four articles](README.md#the-articles). This page sets each table, listing, manifest and diagram of
theirs beside what a lesson shows. A program makes it from the recorded output of the lessons: %d exhibits, with %d
lines that are the same in both, and %d that differ. A letter before a line leads to the reason below the table.

In the first column, = means: the same up to names, addresses, ports and counters. Names that differ have the same
placeholder on both sides (IP1, KUBE-SVC-1), and the program checks that a placeholder stands for one thing throughout a
table. These spellings count as the same:

| printed | compared as |
|---|---|
| columns by spaces, numbers of packets and bytes, the columns opt, in and out | left out |
| the protocols 0, 6, 17 | all, tcp, udp |
| anywhere, dpt:www | 0.0.0.0/0, dpt:80 |
| (24 references) | (N references) |
| the comment "default/web: cluster IP", for a port without a name | "default/web cluster IP" |
| probability 0.33332999982 | four digits |
| ages, hashes in names of pods | AGE, HASH |
| manifests | a line for each field |

The copies of the articles that were at hand have no pictures. What a picture shows is taken from the text around it,
and its table has a row for each box and arrow that the text names.
`

const headKO = `# 네 편의 글과 레슨

레슨은 [네 편의 글](README.md#the-articles)을 따라갑니다. 이 문서는 글에 나오는 모든 표, 출력, 매니페스트, 그림을 레슨의
출력과 나란히 놓습니다. 레슨의 기록된 출력에서 프로그램이 만든 문서입니다. 항목은 %d개이고, 양쪽이 같은 줄이 %d개, 다른
줄이 %d개입니다. 줄 앞의 글자는 표 아래에 적은 이유를 가리킵니다.

첫 칸의 =는 이름, 주소, 포트, 카운터를 빼면 같다는 뜻입니다. 서로 다른 이름은 양쪽에서 같은 기호로 바꾸었고(IP1, KUBE-SVC-1),
한 표 안에서 기호 하나가 하나의 대상만 가리키는지 프로그램이 확인합니다. 다음 표기는 같은 것으로 봅니다.

| 출력 | 비교할 때 |
|---|---|
| 칸 사이의 공백, 패킷과 바이트 수, opt, in, out 열 | 뺌 |
| 프로토콜 0, 6, 17 | all, tcp, udp |
| anywhere, dpt:www | 0.0.0.0/0, dpt:80 |
| (24 references) | (N references) |
| 이름 없는 포트의 주석 "default/web: cluster IP" | "default/web cluster IP" |
| probability 0.33332999982 | 소수점 아래 네 자리 |
| 나이(AGE), 파드 이름의 해시 | AGE, HASH |
| 매니페스트 | 필드마다 한 줄 |

구할 수 있었던 글의 사본에는 그림이 없습니다. 그래서 그림의 내용은 앞뒤의 글에서 가져왔고, 글이 말하는 상자와 화살표마다
표에 줄을 하나씩 두었습니다.
`
