"""How options refer to the other options or say that there is no answer, and how a list ends: one list per language.

The first two are patterns of a whole option without its surrounding punctuation, in small letters and with single
spaces; `{0,n}` bounds what may stand in between, so that the time to match is linear. English and Chinese are from
MMLU, ARC, C-Eval, CMMLU and CMB, all of whose matches were read; German, Spanish, French and Italian from published
translations of MMLU. The others are the customary wordings of school examinations and of translated benchmarks; they
were tried on no data. Limits: a wording that is not here moves with the other options and guards nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Sayings:
    """others: "all of the above" and its kind
    no_answer: "cannot be determined" and its kind, anywhere in an option
    joins: "and", "or" and their kind between words; where no spaces separate words, what is no part of many words
    """

    others: str
    no_answer: str
    joins: str


def _words(joins: str) -> str:
    return rf"(?<!\S)(?:{joins})(?!\S)"


LANGUAGES: Mapping[str, Sayings] = {
    "English": Sayings(
        r"""
        (?:all|none|both|neither|any|either|some|each|two|three|more\ than\ one|one\ or\ more)\b
            (?:\ (?:of|the|these|those|are|is|listed|options?|choices?|answers?|statements?|mentioned|correct|true))*
            \ (?:(?:above|below|following|foregoing|preceding|options?|choices?|answers?|statements?
                |listed|mentioned)\b.{0,40}|these|those)
        | (?:the\ )?(?:above|foregoing|preceding)\ (?:all|both|none|are|options?|answers?)\b.{0,30}
        | (?:all|none|both|neither)
        """,
        r"""
        \b(?:cannot|can(?:no|')t|could\ not|not\ possible\ to|impossible\ to)
            \ (?:be\ )?(?:determined?|inferred|known|decided?|say|tell)\b
        | \b(?:not\ enough|insufficient|need\ more|more)\ information\b
        """,
        _words("and|or|nor"),
    ),
    "Chinese": Sayings(
        r"""
        (?:以上|上述|前述|以下|上面).{0,14}
        | .{0,6}(?:都|均|皆|全)(?:不?是|不?对|不?正确|错误|错|不可以|可以|有)
        """,
        r"无法(?:确定|判断)|不能(?:确定|判断)|不确定",
        r"[和与及或]",
    ),
    "German": Sayings(
        r"""
        (?:alles?|keine[srn]?|nichts|beide[s]?|weder|jede[srn]?)
            \ .{0,16}(?:oben|obigen?|genannten?|genannte[sn]|vorstehenden?|vorherigen|antworten?|optionen|aussagen)
            .{0,24}
        | (?:alles?|keine[srn]?|nichts|beide[s]?)\ (?:davon|zusammen|hiervon|treffen\ zu|trifft\ zu|sind\ richtig)
        | (?:alle|beide|keine[srn]?|nichts)
        """,
        r"""
        \b(?:kann|können|lässt\ sich|lassen\ sich)\ nicht\ .{0,30}(?:bestimmen|bestimmt|entscheiden|entschieden)\b
        | \bnicht\ (?:bestimmbar|entscheidbar)\b | \b(?:nicht\ genug|zu\ wenige?|keine\ ausreichenden)\ informationen\b
        """,
        _words("und|oder|sowie"),
    ),
    "Spanish": Sayings(
        r"""
        (?:tod[oa]s?|ningun[oa]|ningún|nada|amb[oa]s|cualquiera|algun[oa]s?)
            \ (?:de\ )?(?:l[oa]s?|el|est[oa]s|las\ dos)?\ ?
            (?:opci[oó]n(?:es)?|respuestas?|alternativas?|afirmaciones)?\ ?
            (?:anteriore?s?|mencionad[oa]s?|precedentes?|arriba|citad[oa]s?|opci[oó]n(?:es)?|respuestas?|alternativas?
                |afirmaciones|(?:son|es|est[aá]n?)\ (?:correct|ciert|fals|verdader|incorrect)[oa]s?)
            .{0,30}
        | (?:tod[oa]s|ningun[oa]|amb[oa]s)
        """,
        r"""
        \b(?:no\ se\ puede|no\ es\ posible|imposible)\ .{0,12}(?:determinar|saber|decidir|decir)(?:lo|se)?\b
        | \b(?:no\ hay\ suficiente|falta)\ información\b | \binformación\ insuficiente\b
        """,
        _words("[yeou]"),
    ),
    "French": Sayings(
        r"""
        (?:tou(?:te)?s?|tout|aucune?|les\ deux|l'une\ ou\ l'autre|ni\ l'une?\ ni\ l'autre)
            \ .{0,24}(?:réponses?|propositions?|options?|affirmations?|dessus|précède|précédente?s?|cité(?:e)?s
                |mentionné(?:e)?s)
            .{0,24}
        | aucune?\ (?:des\ deux|de\ ceux-ci|de\ celles-ci|d'entre\ (?:eux|elles))
        | (?:toutes|tous|aucune?|les\ deux|ni\ l'une?\ ni\ l'autre)
        """,
        r"""
        \b(?:ne\ peut|on\ ne\ peut|impossible\ (?:de|à)|ne\ peut\ pas)\ .{0,16}(?:déterminer|déterminée?|savoir|dire)\b
        | \b(?:pas\ assez|manque)\ d'informations?\b | \binformations?\ insuffisantes?\b
        """,
        _words("et|ou"),
    ),
    "Italian": Sayings(
        r"""
        (?:tutt[ieoa]|nessun[oa]?|entramb[ie]|qualsiasi)
            \ (?:(?:de)?l(?:le|la)|dei|degli|le|i|gli|quanto|di|quest[ei]|quell[ei])?\ ?(?:due\ )?
            (?:risposte|opzioni|alternative|affermazioni)?\ ?
            (?:precedent[ei]|sopra|suddett[ei]|elencat[ei]|menzionat[ei]|risposte|opzioni|alternative|affermazioni
                |quest[ei]|(?:sono|è)\ (?:corrett|ver|fals)[eaio])
            .{0,30}
        | (?:tutt[ieo]|nessun[oa]|entramb[ie])
        """,
        r"""
        \b(?:non\ (?:si\ può|è\ possibile)|impossibile)\ .{0,12}(?:determinar|stabilir|saper|dir)(?:e|lo)\b
        | \binformazioni\ (?:insufficienti|non\ sufficienti)\b
        """,
        _words("[eo]|ed|oppure"),
    ),
    "Portuguese": Sayings(
        r"""
        (?:tod[oa]s|tudo|nenhuma?|amb[oa]s|qualquer|nada)
            \ (?:[oa]s|d[oa]s|dest[ea]s|del[ea]s|o\ que)?\ ?
            (?:opções|respostas?|alternativas?|afirmações)?\ ?
            (?:anteriore?s?|acima|precedentes?|mencionad[oa]s?|citad[oa]s?|opções|respostas?|alternativas?|afirmações
                |dest[ea]s|del[ea]s|(?:estão|são|está|é)\ (?:corret|cert|verdadeir|fals|incorret)[oa]s?)
            .{0,30}
        | n\.?\ ?d\.?\ ?a | (?:tod[oa]s|nenhuma?|amb[oa]s)
        """,
        r"""
        \b(?:não\ (?:se\ pode|é\ possível|pode\ ser)|impossível)\ .{0,12}(?:determina(?:r|d[oa])|saber|dizer|afirmar)\b
        | \binforma(?:ção|ções)\ insuficientes?\b
        """,
        _words("e|ou"),
    ),
    "Russian": Sayings(
        r"""
        (?:вс[её]|все|ничего|ничто|ни\ одн?[оиаён]{1,2}|оба|обе|любо[ей]|никак[оая][йея])
            \ .{0,10}(?:(?:выше|ниже)?(?:перечисленн|указанн|назван|приведённ|приведенн|упомянут)\w{0,6}
                |из\ (?:них|этого|этих)|ответ\w{0,3}|вариант\w{0,3}|утверждени\w{0,3})
            .{0,24}
        | нет\ (?:верного|правильного)\ .{0,10}ответа | (?:вс[её]\ (?:верно|неверно)|ни\ то,?\ ни\ другое)
        """,
        r"\b(?:невозможно|нельзя)\ .{0,12}(?:определить|сказать|установить)\b|\bнедостаточно\ (?:данных|информации)\b",
        _words("и|или"),
    ),
    "Hindi": Sayings(
        r"""
        (?:उपर्युक्त|उपरोक्त|ऊपर|इनमें|इन|इसमें|ये|दिए\ गए|निम्नलिखित)\ .{0,24}
            (?:सभी|कोई\ (?:भी\ )?नहीं|दोनों|एक\ से\ अधिक).{0,16}
        | (?:सभी|दोनों|कोई\ (?:भी\ )?नहीं)(?:\ (?:सही|गलत|उपरोक्त|उपर्युक्त)(?:\ हैं?)?)?
        """,
        r"(?:निर्धारित|ज्ञात|तय)\ नहीं\ किया\ जा\ सकता|अपर्याप्त\ (?:जानकारी|डेटा|आँकड़े)",
        _words("और|या|तथा|एवं"),
    ),
    "Thai": Sayings(
        r"""
        (?:ถูก|ผิด|ไม่ถูก|ไม่ผิด|ถูกต้อง|เป็น)(?:ทุก|ทั้งหมด|ทั้ง).{0,24}
        | (?:ทั้งหมด|ทุกข้อ|ข้อมูลทั้งหมด).{0,16}(?:ข้างต้น|กล่าวมา|ถูก).{0,10}
        | ไม่(?:มี|ใช่)(?:ข้อ|คำตอบ|สิ่ง|ทั้ง).{0,24} | (?:ทั้งหมด|ทุกข้อ|ถูกทุกข้อ|ผิดทุกข้อ)
        """,
        r"ไม่สามารถ(?:ระบุ|สรุป|กำหนด|บอก)ได้|ข้อมูลไม่(?:เพียงพอ|พอ)",
        r"และ|หรือ",
    ),
    "Japanese": Sayings(
        r"""
        (?:上記|以上|上|これら|前述|選択肢)の?.{0,6}(?:すべて|全て|全部|いずれ|どれ|両方|なし).{0,14}
        | (?:すべて|全て|いずれも|どれも|両方とも?|どちらも)
            (?:正しい|正しくない|誤り|間違い|該当|当てはまる|違う|である).{0,8}
        | (?:すべて|全て|いずれでもない|どれでもない|どちらでもない|該当なし|両方)
        """,
        r"(?:判断|決定|特定|断定)(?:でき|は?でき)(?:ない|ません)|情報(?:が|は)?(?:不足|足りない)|わからない",
        r"および|及び|または|又は",
    ),
    "Korean": Sayings(
        r"""
        (?:위|이상|보기|다음|상기)(?:의|에서|\ )?.{0,8}(?:모두|모든|전부|없음|없다|아무|어느|아니).{0,16}
        | (?:모두|전부|둘\ 다|어느\ 것도|아무것도)\ ?(?:맞다|옳다|틀리다|아니다|해당|정답|맞음|옳음|틀림|아님).{0,10}
        | (?:모두|전부|둘\ 다|해당\ ?없음|정답\ ?없음|없음)
        """,
        r"(?:알|결정할|판단할)\ 수\ 없|정보가?\ 부족",
        _words("그리고|및|또는"),
    ),
    "Arabic": Sayings(
        r"""
        (?:كل|جميع|لا\ شيء|ليس|أي|لا\ أحد|لا\ شئ|كلا|ولا\ واحد)\ .{0,12}
            (?:سبق|ذكر|ذُكر|أعلاه|الإجابات|الاجابات|الخيارات|الخيارين|البدائل|المذكور|السابق).{0,24}
        | (?:كلاهما|كلتاهما|كل\ ذلك|لا\ شيء|جميعها|كلها)(?:\ (?:صحيح|خاط|خطأ).{0,4})?
        """,
        r"لا\ يمكن\ (?:تحديد|معرفة|الجزم)|معلومات\ غير\ كافية",
        _words("و|أو|ثم"),
    ),
}
