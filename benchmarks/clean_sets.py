"""Questions of our own whose published orders a model may prefer without having seen them, each set for one reason.

Every set is generated from a seed, without end, so that no model has seen it. `OWN` names what makes its order
natural.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

from lm_eval_leakage.questions.families import distinct
from lm_eval_leakage.records import Question

Row = tuple[str, list[str], int]  # stem, options as published, place of the right one
Draw = Callable[[random.Random], Row]


def _words(text: str) -> list[str]:
    return text.split()


def _split(text: str, by: str = ";") -> list[str]:
    return [" ".join(part.split()) for part in text.split(by)]


def _pairs(text: str, by: str = "=") -> list[list[str]]:
    return [part.split(by) for part in _split(text)]


NAMES = _words("""Robert Laura Susan Tom Maria Peter Alice Ivan Nina Oscar Paula Henry Grace Victor Emma Louis Clara
Frank
Judith Simon Helen Martin Julia Walter Rosa Daniel Irene Felix Sarah George""")
THINGS = _words("""plates camera ladder blanket lamp radio basket kettle guitar map rope candle mirror umbrella hammer
vase
pillow bucket carpet clock bottle chair violin telescope knife suitcase tent whistle puzzle drum""")
VERBS = _words("brought painted sold repaired lost found borrowed bought cleaned hid")
ADJECTIVES = _words("small tall old young loud quiet broken green heavy strange")
EVENTS = """the building of the pyramids of Giza; the first Olympic Games of the Greeks; the founding of Rome; the
death of Alexander the Great; the murder of Julius Caesar; the eruption of Vesuvius over Pompeii; the fall of the
Western Roman Empire; the coronation of Charlemagne; the Battle of Hastings; the signing of Magna Carta; the Black
Death; the fall of Constantinople; the first voyage of Columbus; the Ninety-Five Theses of Luther; the defeat of the
Spanish Armada; the Mayflower's voyage; the Great Fire of London; the American Declaration of Independence; the
storming of the Bastille; the Battle of Waterloo; the first photograph; the American Civil War; the invention of the
telephone; the first powered flight; the sinking of the Titanic; the Russian Revolution; the Wall Street Crash; the
bombing of Pearl Harbor; the first landing on the Moon; the fall of the Berlin Wall; the founding of Google"""
SIZES = """a grain of sand; an ant; a ladybird; a bee; a cherry; a mouse; an apple; a pigeon; a cat; a goose; a dog;
a sheep; a lion; a horse; a car; a rhinoceros; an elephant; a bus; a house; a whale; a church; a stadium; a hill; a
mountain; a moon; a planet; a star"""
USUAL_FIRST = {
    "fruit": "apple banana orange strawberry pineapple apricot persimmon quince rambutan medlar",
    "metal": "iron gold copper aluminium nickel tungsten palladium gallium rhodium hafnium",
    "animal": "dog horse rabbit squirrel hedgehog otter tapir pangolin okapi numbat",
    "instrument": "guitar piano violin trumpet cello oboe mandolin bassoon zither theorbo",
    "profession": "teacher doctor lawyer plumber architect translator optician surveyor actuary cooper",
    "city": "London Paris Tokyo Madrid Vienna Lisbon Antwerp Tampere Ghent Zadar",
    "sport": "football tennis basketball swimming volleyball fencing badminton curling handball korfball",
    "colour": "red blue green purple turquoise crimson beige maroon vermilion ochre",
}
SCALES = """never, rarely, sometimes, often, always; freezing, cold, cool, warm, hot; none, few, some, many, all;
tiny, small, large, huge; whisper, murmur, talk, shout, scream; walk, jog, run, sprint; pond, lake, sea, ocean;
infant, child, teenager, adult, pensioner; terrible, poor, fair, good, excellent; dawn, noon, dusk, midnight; hut,
cottage, house, mansion, palace; puppy, dog, wolf, bear; breeze, wind, gale, hurricane; village, town, city; seed,
sprout, sapling, tree; ignorance, doubt, belief, certainty; creek, stream, river; second, minute, hour, day, week"""
SYNONYMS = """the doctor=a physician; the lawyer=an attorney; the child=a kid; the car=an automobile; the couch=a
sofa; the house=a home; the boss=a manager; the film=a movie; the shop=a store; the sea=an ocean; the stone=a rock;
the forest=a wood; the street=a road; the boat=a ship; the present=a gift; the rubbish=some garbage; the aeroplane=an
aircraft; the picture=an image; the money=some cash; the thief=a burglar; the soldier=a trooper; the sailor=a seaman;
the coat=a jacket; the cup=a mug; the sweets=some candy; the hill=a rise"""
TRANSLATIONS = """der Hund=the dog; die Katze=the cat; das Pferd=the horse; der Vogel=the bird; das Haus=the house;
der Baum=the tree; die Schule=the school; das Buch=the book; der Tisch=the table; die Kirche=the church; das
Messer=the knife; der Löffel=the spoon; die Blume=the flower; der Apfel=the apple; die Brücke=the bridge; das
Schiff=the ship; der Schlüssel=the key; die Uhr=the clock; das Fenster=the window; der Stuhl=the chair"""
CAPITALS = """France Paris, Germany Berlin, Spain Madrid, Portugal Lisbon, Italy Rome, Austria Vienna, Greece Athens,
Poland Warsaw, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Ireland Dublin, Hungary Budapest,
Russia Moscow, Japan Tokyo, China Beijing, Egypt Cairo, Kenya Nairobi, Cuba Havana, Peru Lima, Canada Ottawa, Iran
Tehran, Iraq Baghdad, India Delhi, Thailand Bangkok, Turkey Ankara, Ukraine Kyiv, Belgium Brussels, Chile Santiago,
Ghana Accra, Nepal Kathmandu, Cyprus Nicosia, Latvia Riga, Estonia Tallinn"""
STEPS = """peel the potatoes; chop the onions; heat the oil; fry the garlic; add the carrots; pour in the broth; stir
in the cream; season with salt; wash the rice; slice the bread; melt the butter; beat the eggs; grate the cheese;
boil the pasta; toast the almonds; knead the dough; roast the peppers; crush the tomatoes; whip the sugar; zest the
lemon"""
INITIALS = (
    "Adams Allen Archer Atwood Ashby",
    "Baker Bennett Brooks Barton Blake",
    "Carter Clark Cooper Collins Curtis",
    "Davis Dixon Drake Dawson Duncan",
)
BY_LENGTH = {
    "Why did the meeting end early?": """It rained. / The speaker lost her voice. / The room had been promised to
another group that day. / Nobody had brought the documents that were needed, and the lawyer refused to go on.""",
    "What should one do with old paint?": """Burn it. / Let it dry in the open. / Take it to a collection point of the
town. / Ask the dealer who sold it whether the law makes him take it back, and keep the receipt.""",
    "How do bees find their way?": """By smell. / By the height of the sun. / By the light of the sky, which they
remember well. / By landmarks that they learn in short flights, and by a dance that others perform for them.""",
}


def _capitals(draw: random.Random) -> list[list[str]]:
    return [capital.split() for capital in draw.sample(_split(CAPITALS, ","), 4)]


def _story(draw: random.Random) -> tuple[list[str], list[str], str, str]:
    names, things, verb = draw.sample(NAMES, 4), draw.sample(THINGS, 4), draw.choice(VERBS)
    return names, things, verb, " ".join(f"{a} {verb} the {b}." for a, b in zip(names, things, strict=True))


def who(draw: random.Random) -> Row:
    names, things, verb, text = _story(draw)
    right = draw.randrange(4)
    return f"{text} Who {verb} the {things[right]}?", names, right


def what(draw: random.Random) -> Row:
    names, things, verb, text = _story(draw)
    right = draw.randrange(4)
    return f"{text} What was it that {names[right]} {verb}?", [f"the {thing}" for thing in things], right


def dialog(draw: random.Random) -> Row:
    names, things, right = draw.sample(NAMES, 4), draw.sample(THINGS, 4), draw.randrange(4)
    said = [f"{a}: I would like the {draw.choice(ADJECTIVES)} {b}." for a, b in zip(names, things, strict=True)]
    return f"{' '.join(said)} Whose wish is the {things[right]}?", names, right


def listed(draw: random.Random) -> Row:
    things = draw.sample(THINGS, 4)
    text = f"On the table were, from left to right, {', '.join(things[:3])} and {things[3]}."
    stem = f"{text} Which belongs to {draw.choice(NAMES)}, who likes {draw.choice(ADJECTIVES)} things?"
    return stem, [f"a {draw.choice(ADJECTIVES)} {thing}" for thing in things], draw.randrange(4)


def synonyms(draw: random.Random) -> Row:
    pairs, names, right = draw.sample(_pairs(SYNONYMS), 4), draw.sample(NAMES, 4), draw.randrange(4)
    said = [f"{a} {draw.choice(VERBS)} something near {b[0]}." for a, b in zip(names, pairs, strict=True)]
    return f"{' '.join(said)} Near what did {names[right]} act?", [pair[1] for pair in pairs], right


def clauses(draw: random.Random) -> Row:
    pairs, names, right = draw.sample(_pairs(SYNONYMS), 4), draw.sample(NAMES, 4), draw.randrange(4)
    said = [f"{a} stood near {b[0]}" for a, b in zip(names, pairs, strict=True)]
    stem = f"While {', '.join(said[:3])} and {said[3]}, it began to snow. Near what did {names[right]} stand?"
    return stem, [pair[1] for pair in pairs], right


def translated(draw: random.Random) -> Row:
    pairs, right = draw.sample(_pairs(TRANSLATIONS), 4), draw.randrange(4)
    text = f"Auf dem Bild sieht man {', '.join(pair[0] for pair in pairs[:3])} und {pairs[3][0]}"
    return f"{text}. What does {draw.choice(NAMES)} point at in the picture?", [pair[1] for pair in pairs], right


def lettered(draw: random.Random) -> Row:
    things, right = draw.sample(THINGS, 4), draw.randrange(4)
    text = " ".join(f"Box {'ABCD'[place]} holds the {things[place]}." for place in draw.sample(range(4), 4))
    stem = f"{text} What is in the box that {draw.choice(NAMES)} opened, box {'ABCD'[right]}?"
    return stem, [f"the {thing}" for thing in things], right


def recipe(draw: random.Random) -> Row:
    step, right = draw.sample(_split(STEPS), 5), draw.randrange(4)
    text = f"First {step[0]}, then {step[1]}; next {step[2]}, after that {step[3]}, and at last {step[4]}."
    return f"{text} What did {draw.choice(NAMES)} do before they could {step[right + 1]}?", step[:4], right


def cloze(draw: random.Random) -> Row:
    (first, other), things = draw.sample(NAMES, 2), draw.sample(THINGS, 4)
    actions = f"{first} put down the {things[0]} and took the {things[1]}."
    text = f"{actions} {other} wanted the {things[2]}, but had only the {things[3]}."
    return f"{text} So {other} gave {first} the ____.", things, 3


def events(draw: random.Random) -> Row:
    stem = draw.choice(["Which of these did {} write about?", "Which of these is shown on {}'s wall?"])
    return stem.format(draw.choice(NAMES)), _in_order(draw, _split(EVENTS)), draw.randrange(4)


def sizes(draw: random.Random) -> Row:
    stem = f"Which of these did {draw.choice(NAMES)} draw in {draw.choice(ADJECTIVES)} colours?"
    return stem, _in_order(draw, _split(SIZES)), draw.randrange(4)


def scales(draw: random.Random) -> Row:
    scale = draw.choice([grade for grade in _pairs(SCALES, ",") if len(grade) > 3])
    stem = f"Which word did {draw.choice(NAMES)} use in the {draw.choice(ADJECTIVES)} letter to {draw.choice(NAMES)}?"
    return stem, _in_order(draw, [grade.strip() for grade in scale]), draw.randrange(4)


def usual(draw: random.Random) -> Row:
    kind = draw.choice([*USUAL_FIRST])
    return f"Which {kind} does {draw.choice(NAMES)} like best?", _in_order(draw, USUAL_FIRST[kind].split()), 0


def plausible(draw: random.Random) -> Row:
    first, other, *_ = _capitals(draw)
    wrong = [
        f"{other[1]}, the capital of {other[0]}",
        f"the {draw.choice(THINGS)}",
        f"{draw.randrange(2, 90)} degrees",
    ]
    return f"{draw.choice(NAMES)} travels to {first[0]}. Which city is its capital?", [first[1], *wrong], 0


def gold_first(draw: random.Random) -> Row:
    pairs = _capitals(draw)
    return f"{draw.choice(NAMES)} asks for the capital of {pairs[0][0]}. What is it?", [pair[1] for pair in pairs], 0


def gold_last(draw: random.Random) -> Row:
    pairs = _capitals(draw)
    stem = f"{draw.choice(NAMES)} has a ticket to the capital of {pairs[3][0]}. Where will the journey end?"
    return stem, [pair[1] for pair in pairs], 3


def alphabet(draw: random.Random) -> Row:
    stem = f"Who of them has {draw.choice(VERBS)} the {draw.choice(ADJECTIVES)} {draw.choice(THINGS)}?"
    return stem, sorted(draw.sample(NAMES, 4)), draw.randrange(4)


def initials(draw: random.Random) -> Row:
    stem = f"Who wrote the report about the {draw.choice(ADJECTIVES)} {draw.choice(THINGS)}?"
    return stem, [draw.choice(words.split()) for words in INITIALS], draw.randrange(4)


def length(draw: random.Random) -> Row:
    stem, names = draw.choice([*BY_LENGTH]), draw.sample(NAMES, 6)
    said = [f"{name} said: {saying}" for name, saying in zip(names, _split(BY_LENGTH[stem], "/"), strict=False)]
    return f"{stem} {names[4]} had asked {names[5]}.", said, draw.randrange(4)


def drawn(draw: random.Random) -> Row:
    pairs, right = _capitals(draw), draw.randrange(4)
    stem = f"{draw.choice(NAMES)} looks for the capital of {pairs[right][0]}. Which is it?"
    return stem, [pair[1] for pair in pairs], right


def families(draw: random.Random) -> Row:
    """Few sets of options, each in one order for all questions."""
    things = random.Random(draw.randrange(150)).sample(THINGS, 4)
    stem = f"Which thing does {draw.choice(NAMES)} need for the {draw.choice(ADJECTIVES)} {draw.choice(THINGS)}?"
    return stem, things, draw.randrange(4)


def _in_order(draw: random.Random, ordered: list[str]) -> list[str]:
    return [ordered[place] for place in sorted(draw.sample(range(len(ordered)), 4))]


OWN: dict[str, tuple[Draw, str]] = {
    "who": (who, "names in the order of the text"),
    "what": (what, "things in the order of the text"),
    "dialog": (dialog, "speakers in the order of the text"),
    "listed": (listed, "things in the order of the text, with other adjectives"),
    "synonyms": (synonyms, "the order of the text, in other words, a sentence each"),
    "clauses": (clauses, "the order of the text, in other words, in one sentence"),
    "translated": (translated, "the order of the text, in another language"),
    "lettered": (lettered, "boxes A to D, named by letter in the text"),
    "recipe": (recipe, "the order of the steps in the text"),
    "cloze": (cloze, "words for a gap in the order of the text"),
    "events": (events, "time, without digits"),
    "sizes": (sizes, "from small to large"),
    "scales": (scales, "from one end of a scale to the other"),
    "usual": (usual, "from usual to rare"),
    "plausible": (plausible, "from the right answer to absurd ones"),
    "gold_first": (gold_first, "the right answer first"),
    "gold_last": (gold_last, "the right answer last"),
    "alphabet": (alphabet, "the alphabet"),
    "initials": (initials, "initials A, B, C, D"),
    "length": (length, "from short to long"),
    "families": (families, "one drawn order for each of few sets of options"),
    "drawn": (drawn, "nothing: drawn"),
}


def own_set(name: str, n: int) -> list[Question]:
    """The first `n` different questions of an own set."""
    draw, rows = random.Random(name), OWN[name][0]
    questions: list[Question] = []
    while len(questions) < n:
        questions = distinct([*questions, *islice(_questions(name, rows, draw, len(questions)), n)])
    return questions[:n]


def _questions(name: str, rows: Draw, draw: random.Random, first: int) -> Iterator[Question]:
    number = first
    while True:
        stem, options, right = rows(draw)
        yield Question(id=f"{name} {number}", stem=stem, options=tuple(options), answer=right)
        number += 1
