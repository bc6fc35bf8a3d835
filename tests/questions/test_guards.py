"""Guards of options, and the order in which a question's text names them."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lm_eval_leakage.questions.guards import (
    MANY,
    MENTIONED,
    PASSAGE,
    anchored,
    cumulative,
    guards_of,
    in_order,
    letters_meant,
    of_statements,
    shared_option_sets,
    speaks_of_others,
    true_or_false,
)
from lm_eval_leakage.questions.natural_orders import in_order_of_mention, mentions
from lm_eval_leakage.records import Question


def question(*options: str, id: str = "q") -> Question:
    return Question(id, "Which?", options)


@pytest.mark.parametrize(
    "option",
    [
        *("All of the above", "none of the above.", "None of these", "Neither of these", "all of these options"),
        *("All of the options given are correct", "None of the answers", "None", "More than one of the above"),
        *(
            "Moons contribute to all of the above.",
            "以上都是",
            "以上说法都不对",
            "上述全部",
            "都不正确",
            "Alle oben genannten",
        ),
        *("Nichts des oben Genannten", "Keine dieser Antworten ist richtig", "Beides trifft zu"),
        *("Ninguna de las anteriores", "Todo lo anterior", "Todas las respuestas son correctas"),
        *("TODAS SON CORRECTAS.", "Toutes les réponses ci-dessus", "Aucune de ces propositions"),
        *("Tout ce qui précède", "Nessuna delle precedenti", "Tutte le risposte sono corrette"),
        *("Nenhuma das alternativas anteriores", "Todas as anteriores", "N.D.A.", "Всё вышеперечисленное"),
        *("Ничего из перечисленного", "Нет правильного ответа", "उपरोक्त सभी", "इनमें से कोई नहीं", "ถูกทุกข้อ"),
        *("ไม่มีข้อใดถูก", "上記のすべて", "いずれでもない", "위의 모두", "해당 없음", "كل ما سبق", "لا شيء مما سبق"),
        *("جميع الإجابات صحيحة",),
    ],
)
def test_options_that_refer_to_others_are_anchored(option: str) -> None:
    assert speaks_of_others(option)
    assert "anchored" in guards_of(question("red", "blue", "green", option))


@pytest.mark.parametrize(
    "option",
    [
        *("All mammals", "None other than Caesar", "No-one is above the law."),
        *("Some of these cells divide twice", "Both hands", "唐长安", "元大都", "Any risk of invasion of privacy"),
        *("all-or-none response", "Alle Sulfate sind löslich", "Todas las hijas de un varón afectado"),
        *("Todos los sulfatos son solubles", "Tous les sulfates sont solubles"),
        *("Tutte le figlie di un maschio affetto", "Todas as células do corpo", "Все млекопитающие"),
        *("सभी स्तनधारी", "ทั้งหมดเป็นสัตว์", "すべての哺乳類", "모든 포유류", "كل الثدييات"),
    ],
)
def test_options_with_such_words_about_something_else_are_not(option: str) -> None:
    assert not speaks_of_others(option)


@pytest.mark.parametrize(
    ("option", "places"),
    [
        ("Both A and B", {0, 1}),
        ("both (A) and (C)", {0, 2}),
        ("A, B and D are correct", {0, 1, 3}),
        ("Neither B nor C", {1, 2}),
        ("A和B都对", {0, 1}),
        ("A、C", {0, 2}),
        ("both a and b.", {0, 1}),
        ("neither (a) nor (c)", {0, 2}),
        ("b & c only", {1, 2}),
        ("Both a and c", {0, 2}),
        ("a/b", set()),  # a fraction
        ("{a, b}", set()),  # a set
        ("Core", set()),
        ("Both decor and B", set()),
        ("Both genotype and phenotype", set()),
        ("A", set()),  # a vitamin, a blood group, a note
        ("vitamin A and iron", set()),
        ("Hepatitis B or C", set()),
    ],
)
def test_letters_name_other_options_only_where_they_are_the_whole_option(option: str, places: set[int]) -> None:
    assert letters_meant(option) == places


def test_options_referred_to_by_letter_keep_their_place_too() -> None:
    assert anchored(["x", "y", "z", "Both A and C"]) == {0, 2, 3}
    assert anchored(["x", "y", "z", "None of the above"]) == {3}
    assert anchored(["x", "y"]) == set()
    assert anchored(["x", "A and J"]) == {0, 1}  # there is no tenth option


@pytest.mark.parametrize(
    "options",
    [
        ["1", "2", "3", "4"],
        ["181 days", "183 days", "185 days", "189 days"],
        ["$2.82 ", "$2.97 ", "$6.47 ", "$12.77 "],
        ["-$9,500", "$370", "$4,000", "$11,370"],
        ["37.50%", "40%", "60.50%", "62.50%"],
        ["30头", "20头", "15头", "10头"],
        ["1/4", "1/3", "1/2"],
        ["\\frac{1}{2}", "2", "\\frac{7}{2}"],
        ["100 and 299", "300 and 499", "500 and 699"],
        ["Zero order", "First order", "Second order", "Third order"],
        ["two", "three", "seven"],
        ["1 million", "1 billion", "2 billion"],
        ["30 seconds", "5 minutes", "1 hour", "2 days"],
        ["5 mm", "2 cm", "1 m"],
        ["May 1789", "4 July 1790", "January 3, 1801"],
        ["1914", "1918", "1939", "none of the above"],
        ["Monday", "Wednesday", "Friday"],
        ["-3", "-2", "0"],
        ["第十", "第八", "第六"],
        ["Sunday", "Monday", "Tuesday", "Wednesday"],
        ["Friday", "Saturday", "Sunday"],
        ["about 10 seconds.", "about 30 seconds.", "about 1 minute.", "about 4 minutes."],
        ["1 nm", "1 μm", "1 mm", "1 m"],
        ["0.168", "0.843", "0.915", "The answer cannot be determined without the size."],
    ],
)
def test_rising_and_falling_options_are_in_order(options: list[str]) -> None:
    assert in_order(options)
    is_week, has_no_number = "Sunday" in options, options[-1][-1] == "." or "above" in options[-1]
    assert in_order(options[::-1]) or is_week or has_no_number
    assert not in_order([options[1], options[0], *options[2:]]) or len(options) < 3


@pytest.mark.parametrize(
    "options",
    [
        ["1", "3", "2", "4"],
        ["5 days", "6 weeks", "2 days"],
        ["1", "1", "2"],  # equal numbers rise nowhere
        ["x = 1", "y = 2", "z = 3"],
        ["red", "blue"],
        ["Article 1 of the treaty", "The 2nd amendment"],
        ["5 cats", "7 dogs"],
        ["7", "none of the above"],  # one number has no order
        ["12 years", "3-6 years", "7-12 years"],
        ["2 km", "3 kg"],
    ],
)
def test_other_numbers_are_not(options: list[str]) -> None:
    assert not in_order(options)


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=5, unique=True), st.sampled_from(["{}", "{} m", "${}"]))
def test_of_all_orders_of_numbers_only_two_are_in_order(numbers: list[int], form: str) -> None:
    assume(form != "${}" or min(numbers) >= 0)
    orders = [order for order in permutations(numbers) if in_order([form.format(number) for number in order])]
    assert orders == sorted([tuple(sorted(numbers)), tuple(sorted(numbers, reverse=True))], key=orders.index)
    assert len(orders) == 2


@pytest.mark.parametrize(
    "option",
    [
        *("The answer cannot be determined from this.", "Can’t say", "There is not enough information.", "无法判断"),
        *("Need more information.", "It is impossible to say", "无法确定"),
        *("Das kann nicht bestimmt werden", "No se puede determinar", "On ne peut pas le déterminer"),
        *("Non si può determinare", "Não é possível determinar", "Невозможно определить", "ไม่สามารถระบุได้"),
        *("判断できない", "알 수 없다", "لا يمكن تحديد ذلك", "निर्धारित नहीं किया जा सकता"),
    ],
)
def test_options_that_say_that_there_is_no_answer_are_known_in_each_language(option: str) -> None:
    assert "no_answer" in guards_of(question("red", "blue", option))


@pytest.mark.parametrize(
    "option",
    [
        *("It can be determined", "No se oxida", "Falta de hierro", "Недостаточно соли"),
        *("The judge could not be bribed.", "more informed voters", "不是"),
    ],
)
def test_options_that_answer_are_not(option: str) -> None:
    assert guards_of(question("red", "blue", option)) == ()


@pytest.mark.parametrize(
    "options",
    [
        ["True", "False"],
        ["True, True", "False, False"],
        ["Not wrong, Wrong", "Wrong, Not wrong"],
        ["对", "错"],
        ["Yes.", "No."],
    ],
)
def test_verdicts_are_true_or_false(options: list[str]) -> None:
    assert true_or_false(options)
    assert not true_or_false([*options, "Yes, because it is red"])


@pytest.mark.parametrize(
    "options",
    [
        ["I only", "II only", "I and II", "I, II, and III"],
        ["(i) and (iii) only", "(i), (ii), and (iii) only"],
        ["①②", "①③④", "②④"],
        ["abd", "acd", "bcd", "abc"],
        ["None", "III only", "I and II only"],
        ["(I)", "(I) and (II)", "(II) (III)"],
        ["1) and 2)", "(1) 2)"],
        ["①②", "①和③"],
    ],
)
def test_lists_of_statements_are_found(options: list[str]) -> None:
    assert of_statements(options)
    assert not any(of_statements([*options, other]) for other in ("red", "(I) x", "1", "I and"))


def test_sets_of_options_of_many_questions_are_templates_in_any_order() -> None:
    same = [question("up", "down", id=str(i)) for i in range(MANY - 1)] + [question("Down ", "up")]
    others = [question("left", "right", id=str(i)) for i in range(MANY - 1)]
    templates = shared_option_sets([*same, *others])
    assert guards_of(same[0], templates) == ("templated",)
    assert guards_of(others[0], templates) == ()


def test_options_that_extend_each_other_are_cumulative() -> None:
    ribs = ["The ribs", "The ribs and sternum", "The ribs, sternum and clavicle", "None of the above"]
    assert cumulative(ribs)
    assert cumulative(ribs[2::-1])
    assert not cumulative([ribs[1], ribs[0], ribs[2]])
    assert not cumulative(["the", "ribs", "the ribs"])  # the first says nothing
    assert not cumulative(ribs[:2])


# ---------------------------------------------------------------------- texts that no question has


HOSTILE = {
    "a number of 4,301 digits": "1" * 4301,
    "numbers multiplied": "9 million " * 400,
    "fractions of fractions": "1/7" * 3000,
    "letters in a list": "A, B, C, D, E, " * 60 + "x!",
    "brackets around statements": "(I) (II) (III) " * 60 + "!x",
    "brackets of nothing": "I " + "(" * 50_000 + "x",
    "all of the options of the options": "all" + " of the options" * 3000 + "!" * 3000 + "x",
    "white space": "both" + " " * 100_000 + "x",
    "half of a surrogate pair": "\ud800",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_guards_judge_any_option_in_linear_time(text: str) -> None:
    guards_of(question(text, f"{text} 2", "red", f"{text} 3"))
    guards_of(question(text, f"{text} "))


@pytest.mark.parametrize(
    ("stem", "n_options", "guarded"),
    [
        ("It rained. The mill stood still. The miller slept. Where was he?", 4, True),
        ("It rained. The mill stood still. Where was the miller?", 4, False),
        ("It rained. The mill stood still. Where was the miller?", 2, True),
        ("Where was the miller? At home?", 2, False),
        ("He said: \u201cIt rained.\u201d \u201cIt poured!\u201d Who was it?", 3, True),
        ("The U.N. has 193 members, 3.5 times as many as in 1945. Which joined last?", 4, False),
        ("下雨了。磨坊停了。磨坊主睡了。他在哪里？", 4, True),
        ("While Ann was near the car, Bob near the sea, Cy near the hill and Dan near the shop, it rained.", 4, True),
        ("Ann was near the car and Bob near the sea. Cy was near the hill, Dan near the shop. Where?", 4, True),
        ("While Ann stood near the car, Bob near the sea and Cy near the hill, it rained.", 4, False),
        ("While Ann stood near the car, Bob near the sea and Cy near the hill, it rained.", 3, True),
        ("Auf dem Bild sieht man Hund, Katze, Maus oder Pferd. What is it?", 4, True),
        ("Подошли кот, пёс, конь и лев. Кто первый?", 4, True),
        ("मेज पर पेन, किताब, कप या घड़ी है। क्या?", 4, True),
        ("桌上有书、笔、杯子和钟。哪一个？", 4, True),
        ("机の上に本、ペン、カップまたは時計がある。どれ？", 4, True),
        ("책상 위에 책, 펜, 컵 그리고 시계가 있다. 어느 것?", 4, True),
        ("على الطاولة كتاب، قلم، كوب أو ساعة. أيها؟", 4, True),
        ("At 12:30 the 1,000,000 grandsons, sandy but more orderly, went home.", 4, False),
    ],
)
def test_options_may_follow_a_text_of_as_many_sentences_or_parts(stem: str, n_options: int, guarded: bool) -> None:
    question = Question("1", stem, tuple(f"place {letter}" for letter in "bdac"[:n_options]))
    assert (PASSAGE in guards_of(question)) is guarded


@pytest.mark.parametrize(
    ("options", "guard"),
    [
        (["Adams", "baker", " Clark", "Davis"], "initials"),
        (["Adams", "Clark", "Baker", "Davis"], None),
        (["Adams", "Baker", "Clark", "Evans"], None),
        (["Cairo", "the vase", "36 degrees", "a map"], "unlike"),
        (["red", "half of 36", "a map", "iron"], None),
        (["12 cows", "7 mills", "9 sheep", "none of the above"], "anchored"),
        (["wet", " wet", "dry"], "repeated"),
        (["symmetric", "transitive", "both symmetric and transitive"], "combining"),
        (["heat", "work", "Neither heat nor work"], "combining"),
        (["hands and feet", "both hands"], None),
        (["a capacitor", "a diode", "a coil of wire", "a resistor"], None),
    ],
)
def test_options_have_the_guard_of_their_kind_and_ordinary_ones_none(options: list[str], guard: str | None) -> None:
    assert guards_of(question(*options)) == ((guard,) if guard else ())


STORY = "Robert brought the plates. Laura brought a lamp, and Tom came later. Who brought a lamp?"


def test_an_option_is_where_the_text_names_it_first() -> None:
    places = mentions(STORY, ("Tom", "Laura", "Susan", "Robert"))
    assert places == (STORY.index("Tom"), STORY.index("Laura"), None, 0)


@pytest.mark.parametrize(
    ("option", "is_named"),
    [
        ("The lamp", True),  # whatever the article
        ("PLATES.", True),
        ("“plates”", False),  # other quotation marks are part of an option
        ("plate", False),  # a part of a word
        ("came  later", True),
        ("a", False),  # in every text
        ("", False),
        ("Laura brought a lamp, and Tom came later. Who brought a lamp? " * 9, False),
    ],
)
def test_options_are_read_as_whole_words_without_case_and_article(option: str, is_named: bool) -> None:
    (place,) = mentions(STORY, (option,))
    assert (place is not None) == is_named


def test_scripts_without_spaces_are_read_by_character() -> None:
    assert mentions("小明买了苹果，小红买了梨。", ("梨", "苹果", "小红")) == (
        None,
        4,
        7,
    )
    assert mentions("가방을 샀다", ("가방을", "가방")) == (0, None)


def test_a_part_of_another_option_is_named_only_elsewhere() -> None:
    assert mentions("iron oxide and then iron", ("iron", "iron oxide")) == (20, 0)
    assert mentions("iron oxide", ("iron", "iron oxide")) == (None, 0)


@given(st.permutations(["Robert", "Laura", "Tom", "Susan"]))
def test_reordering_options_reorders_where_they_are_named(order: list[str]) -> None:
    places = dict(zip(order, mentions(STORY, tuple(order)), strict=True))
    assert places == {"Robert": 0, "Laura": STORY.index("Laura"), "Tom": STORY.index("Tom"), "Susan": None}


def test_one_of_the_orders_of_named_options_is_that_of_mention() -> None:
    orders = list(permutations(("Robert", "Laura", "Tom")))
    assert [order for order in orders if in_order_of_mention(STORY, order)] == [("Robert", "Laura", "Tom")]
    assert not in_order_of_mention(STORY, ("Tom", "Susan"))  # one has no order


def test_it_is_a_guard() -> None:
    assert MENTIONED in guards_of(Question("1", STORY, ("Laura", "Susan", "Tom")))
    assert MENTIONED not in guards_of(Question("1", STORY, ("Tom", "Susan", "Laura")))


TABLE = "On the table are a lamp, a jug, a drum and a kettle. Which one is for sale?"


@pytest.mark.parametrize(
    ("options", "in_order"),
    [
        (("an old lamp", "a new jug", "a red drum", "a small kettle"), True),
        (("an old lamp", "a new vase", "a red drum", "a small kettle"), True),
        (("an old jug", "a new lamp", "a red drum", "a small kettle"), False),
        (("an old lamp", "a new jug", "a red chair", "a small stool"), False),
        (("any lamp", "a lamp and a jug", "a drum", "no kettle"), True),
        (("a lamp and a jug", "a jug and a drum", "a drum and a lamp", "a kettle"), False),
    ],
    ids=["all", "three of four", "two exchanged", "only two", "by its own words", "no word of its own"],
)
def test_options_may_be_named_by_a_word_of_their_own(options: tuple[str, ...], in_order: bool) -> None:
    assert in_order_of_mention(TABLE, options) is in_order
